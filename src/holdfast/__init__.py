"""Holdfast: durable background jobs and schedules."""

__version__ = "0.1.0"
