"""Schedules at work: their slots by the clock on the wall, and the loop that triggers them."""
