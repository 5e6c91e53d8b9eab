"""Fault proxies and servers with unusual settings."""
