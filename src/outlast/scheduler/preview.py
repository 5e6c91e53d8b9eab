"""Previews of a rule's occurrences, and the difference between two rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice

from outlast.core.schedule import TimeRule
from outlast.scheduler.cron import effective_start, occurrences, slots
from outlast.scheduler.timezones import DstNote, load_zone

_NOTE_TEXTS = {
    DstNote.SKIPPED: "skipped: the clock goes forward over it",
    DstNote.MOVED: "the clock goes forward over it; it runs right after",
    DstNote.FIRST: "the first of two: the clock goes back",
    DstNote.SECOND: "the second of two: the clock has gone back",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """One occurrence of a preview; `runs` is False if it is skipped."""

    at: datetime
    local: datetime  # in the time zone of the rule
    wanted: str  # the local time of the expression
    runs: bool
    note: str | None  # the effect of a clock change on it


def preview(rule: TimeRule, after: datetime, *, limit: int = 10) -> list[Upcoming]:
    """Return the next occurrences in the rule's time zone, including skipped ones."""
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
            note=None if each.note is None else _NOTE_TEXTS[each.note],
        )


class SlotChange(StrEnum):
    """Which of two rules has a slot."""

    KEPT = "kept"  # both rules
    ADDED = "added"  # only the new rule
    REMOVED = "removed"  # only the old rule


def diff(
    old: TimeRule, new: TimeRule, after: datetime, *, limit: int = 10
) -> list[tuple[datetime, SlotChange]]:
    """Return the next slots of either rule, and which of them has each."""
    old_slots, new_slots = (set(slots(rule, after, limit=limit)) for rule in (old, new))
    return [
        (at, _change_of(at, old_slots, new_slots)) for at in sorted(old_slots | new_slots)[:limit]
    ]


def _change_of(at: datetime, old_slots: set[datetime], new_slots: set[datetime]) -> SlotChange:
    if at in old_slots and at in new_slots:
        return SlotChange.KEPT
    return SlotChange.ADDED if at in new_slots else SlotChange.REMOVED
