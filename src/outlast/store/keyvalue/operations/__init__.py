"""Contract operations of the key-value store."""
