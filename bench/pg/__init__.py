"""Benchmarks on PostgreSQL, compared with pgqueuer and procrastinate on one server."""
