"""Contract operations of the SQLite store."""
