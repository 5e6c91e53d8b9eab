"""Notifications between processes through LISTEN and NOTIFY."""
