"""Crash tests: scenarios killed at every statement."""
