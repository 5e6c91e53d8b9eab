"""Scaffolding shared by the tests; not part of the wheel."""
