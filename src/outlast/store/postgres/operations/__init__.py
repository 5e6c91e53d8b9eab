"""Contract operations of the PostgreSQL store, one module per noun of the contract."""
