"""Speed, pick-up and growth of Holdfast, beside Huey in the same run: `python -m bench`."""
