"""Which firings go into one transaction, and which of them must wait for another."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from outlast.core.schedule import Firing
from outlast.store.keyvalue.batching import MOST_TEXT

SCHEDULE: Final = 3
"""Records for each schedule: where it stands, and where it was and is found when it is due."""

JOB: Final = 6
"""Records for a job beside its slot: itself, id, number, place, deadline, active key."""


class NumberedFiring(NamedTuple):
    """A firing, its place in the order given, and the number that its job gets."""

    at: int
    firing: Firing
    seq: int


Bundle = list[NumberedFiring]
"""What goes into one transaction."""


def pack_firings(
    items: Sequence[NumberedFiring], *, placed: Collection[str], most: int
) -> list[list[Bundle]]:
    """Lists of bundles: those of one list go one after the other, the lists beside each other.

    Firings that ask for the same thing are in one list, in the order given. `placed` are the
    queues whose jobs have explicit positions, `most` is how many records one bundle may write.
    """
    cut = [_packed([[item] for item in line], most) for line in _lines(items, placed)]
    short = [pieces[0] for pieces in cut if len(pieces) == 1]
    return [[bundle] for bundle in _packed(short, most)] + [line for line in cut if len(line) > 1]


def _lines(items: Sequence[NumberedFiring], placed: Collection[str]) -> list[Bundle]:
    """Whoever asks for what another does stands in one line with it."""
    line_of: dict[object, Bundle] = {}
    for item in items:
        wishes = list(_conflict_keys(item.firing, placed))
        met = {id(line): line for wish in wishes if (line := line_of.get(wish)) is not None}
        own, *others = met.values() if met else [[]]
        for line in others:
            own += line
            line_of |= {wish: own for each in line for wish in _conflict_keys(each.firing, placed)}
        own.append(item)
        line_of |= dict.fromkeys(wishes, own)
    lines = {id(line): line for line in line_of.values()}.values()
    return [sorted(line, key=lambda item: item.at) for line in lines]


def _conflict_keys(firing: Firing, placed: Collection[str]) -> Iterator[object]:
    """All that only one of several can have."""
    yield firing.schedule_id
    yield firing.slot
    job = firing.job
    if job is not None:
        yield "job", job.id
        yield from (key for key in (job.key, job.active_key and ("active", job.active_key)) if key)
        yield from [("group", job.group_id)] if job.member else []
        yield from [("queue", job.queue)] if job.queue in placed else []


def _packed(pieces: Sequence[Bundle], most: int) -> list[Bundle]:
    """As many of them together as one transaction takes, by number and by size, in their order."""
    packed: list[Bundle] = []
    for piece in pieces:
        if packed and _fits([*packed[-1], *piece], most):
            packed[-1].extend(piece)
        else:
            packed.append(list(piece))
    return packed


def _fits(bundle: Bundle, most: int) -> bool:
    jobs = [item.firing.job for item in bundle if item.firing.job is not None]
    known = {item.firing.schedule_id for item in bundle}
    records = SCHEDULE * len(known) + len(bundle) + JOB * len(jobs)
    records += sum((job.key is not None) + 2 * job.member for job in jobs)
    return records <= most and sum(len(job.params) for job in jobs) <= MOST_TEXT
