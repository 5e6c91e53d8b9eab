"""Corruption injected into a store, one module per database."""
