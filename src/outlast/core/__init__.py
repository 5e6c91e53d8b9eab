"""The pure heart: nouns, states and the one place that decides. No clock, no I/O."""
