"""Tests of notifications between processes on one SQLite file."""
