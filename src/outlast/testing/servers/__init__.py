"""Real database servers for tests, started on a machine that has only Python."""
