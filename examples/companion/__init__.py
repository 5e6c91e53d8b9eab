"""A companion that remembers: S2, the typed, leased queue with a dedupe index, on Outlast."""
