"""Tests of the synchronous bridge."""
