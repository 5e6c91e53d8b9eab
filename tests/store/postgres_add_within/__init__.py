"""Tests of jobs added in the transaction of a caller on PostgreSQL."""
