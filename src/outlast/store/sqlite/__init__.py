"""SQLite: one machine, one file, no server."""
