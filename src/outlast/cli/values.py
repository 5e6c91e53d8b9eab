"""Callbacks of options that take a duration or a time; their errors show what to write."""

from datetime import datetime, timedelta

import click

from outlast.core.duration import parse_duration, suggest


def duration(_: click.Context, __: click.Parameter, value: str | None) -> timedelta | None:
    """Parse a duration such as `30s`, `5m` or `1h30m`."""
    if value is None:
        return None
    try:
        return parse_duration(value, what="it")
    except ValueError:
        near = suggest(value).replace('"', "")
        if near.startswith("a timedelta"):
            near = "30s, 5m or 1h30m"
        raise click.BadParameter(f"{value!r:.60} is not a duration; write {near}") from None


def time(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    """Parse a time with its time zone, such as `2026-03-29T02:00Z`."""
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r:.60} is not a time; write 2026-03-29T02:00Z") from None
    if at.tzinfo is None:
        raise click.BadParameter(f"{value!r} has no time zone; write {value}Z or {value}+02:00")
    return at
