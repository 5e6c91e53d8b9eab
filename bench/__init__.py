"""Speed, pick-up and growth of Outlast, beside Huey in the same run: `python -m bench`."""
