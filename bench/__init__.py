"""Benchmarks of Outlast, compared with Huey in the same run: `python -m bench`."""
