"""Whole workers killed, frozen and starved for real: nothing may be lost, doubled or stuck."""
