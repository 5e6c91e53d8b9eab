"""Job types and what callers do with them: define, enqueue, wait, cancel."""
