"""Outlast on PostgreSQL beside pgqueuer and procrastinate, on one server, in one run."""
