"""Executors: the ways to run a handler."""
