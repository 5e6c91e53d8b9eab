"""Contract operations of the PostgreSQL store."""
