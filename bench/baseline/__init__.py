"""The baseline: an earlier tree that this one is measured against."""
