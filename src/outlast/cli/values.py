"""Callbacks of options with values of a form; their errors show what to write."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

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


def pairs(_: click.Context, __: click.Parameter, value: Sequence[str]) -> dict[str, str] | None:
    """Parse words such as `name=text`; None without any."""
    found: dict[str, str] = {}
    for word in value:
        name, mark, text = word.partition("=")
        if not (name and mark):
            raise click.BadParameter(f"{word!r:.60} has no name; write name=text")
        if name in found:
            raise click.BadParameter(f"{name!r:.60} was given twice; give it once")
        found[name] = text
    return found or None


def json_pairs(
    context: click.Context, option: click.Parameter, value: Sequence[str]
) -> dict[str, Any] | None:
    """Parse words such as `name=3`, whose value is JSON or else text; None without any."""
    named = pairs(context, option, value)
    return named and {name: _json_or_text(text) for name, text in named.items()}


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
