"""Periodic maintenance and start-up recovery."""
