"""Schedules: occurrences of time rules, the schedule manager and the trigger loop."""
