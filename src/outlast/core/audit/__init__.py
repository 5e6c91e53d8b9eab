"""Checks over everything stored about a job, used by `verify`."""
