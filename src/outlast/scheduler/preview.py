"""What a rule will do, and what an edit changes about it, before it does."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice

from outlast.core.schedule import TimeRule
from outlast.scheduler.cron import effective_start, occurrences, slots
from outlast.scheduler.timezones import DstNote, load_zone

_SAYS = {
    DstNote.SKIPPED: "skipped: the clock goes forward over it",
    DstNote.MOVED: "the clock goes forward over it; it runs right after",
    DstNote.FIRST: "the first of two: the clock goes back",
    DstNote.SECOND: "the second of two: the clock has gone back",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """One line of a preview. `runs` is False for a local time that is passed over."""

    at: datetime
    local: datetime  # in the rule's zone, with its offset
    wanted: str  # the local time that the expression names
    runs: bool
    note: str | None  # what the change of a clock does to it


def preview(rule: TimeRule, after: datetime, *, limit: int = 10) -> list[Upcoming]:
    """The next occurrences in the rule's zone, among them those that the clock skips."""
    return list(islice(_upcoming(rule, after), limit))


def _upcoming(rule: TimeRule, after: datetime) -> Iterator[Upcoming]:
    tz = load_zone(rule.timezone)
    last = effective_start(rule, after)
    for each in occurrences(rule, last):
        if rule.end is not None and each.at > rule.end:
            return
        runs = each.note is not DstNote.SKIPPED and each.at > last
        last = each.at if runs else last
        yield Upcoming(
            at=each.at,
            local=each.at.astimezone(tz),
            wanted=f"{each.local:%Y-%m-%d %H:%M}",
            runs=runs,
            note=None if each.note is None else _SAYS[each.note],
        )


class SlotChange(StrEnum):
    """Which of two versions has a slot."""

    KEPT = "kept"  # both
    ADDED = "added"  # the new one alone
    REMOVED = "removed"  # the old one alone


def diff(
    old: TimeRule, new: TimeRule, after: datetime, *, limit: int = 10
) -> list[tuple[datetime, SlotChange]]:
    """The next slots of either version, and which of them has each."""
    was, will = (set(slots(rule, after, limit=limit)) for rule in (old, new))
    return [(at, _side(at, was, will)) for at in sorted(was | will)[:limit]]


def _side(at: datetime, was: set[datetime], will: set[datetime]) -> SlotChange:
    if at in was and at in will:
        return SlotChange.KEPT
    return SlotChange.ADDED if at in will else SlotChange.REMOVED
