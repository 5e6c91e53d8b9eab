"""Mappers between rows and values, shared by the SQL stores."""
