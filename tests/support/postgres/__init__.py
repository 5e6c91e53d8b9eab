"""PostgreSQL helpers: clock, connection reuse."""
