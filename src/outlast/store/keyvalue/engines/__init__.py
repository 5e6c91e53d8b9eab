"""Engines of the key-value store: one folder per database."""
