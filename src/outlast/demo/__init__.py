"""The demo: a scripted tour with real workers; every printed claim is verified."""
