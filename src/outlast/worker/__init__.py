"""The worker: claims jobs, runs them, closes their runs and maintains the store."""
