"""PostgreSQL: many workers on many hosts, by the database's clock."""
