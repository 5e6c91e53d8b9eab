"""Audit of a store: the invariants of its history, and the repairs for violations."""
