"""Tests of transactions of handlers on PostgreSQL."""
