"""Keys that are held for a while, and what an enqueue does to the job that holds its key.

A window ends a span after the creation of the job that took the key. Without a span it is a
debounce key: that job holds it until its first claim, and each further enqueue replaces its
request and moves its due time.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from outlast.core.change import Change
from outlast.core.decide import decide
from outlast.core.event import ZERO, Edited
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.limits import check_key
from outlast.core.position import JobEdit
from outlast.core.state import WAITING
from outlast.errors import InvalidArgument

LONGEST_WINDOW: Final = timedelta(days=3_650)
TOO_LATE: Final = "the job would be due beyond the year 9999"


def check_replacement(new: NewJob) -> None:
    """Raise InvalidArgument if the window of `new`, or what it replaces, is not valid."""
    window = new.window
    if window is not None:
        check_key(window.key, what="key")
        check_key(window.bucket, what="bucket", empty=True)
        for what, span in (("unique_for", window.span), ("at_most", window.at_most)):
            if span is not None and not timedelta(0) < span <= LONGEST_WINDOW:
                raise InvalidArgument(
                    f"{what} is {span}; it must be above zero, and at most {LONGEST_WINDOW.days} "
                    "days"
                )
        if window.span is None and not (new.replaces and new.delay and new.at is None):
            raise InvalidArgument("a debounced job has a delay and replaces another one")
    if new.replaces and (new.slot is not None or new.retry_of is not None or new.member):
        raise InvalidArgument(
            "a job for a slot, a retry and a member of a group replace no other job; leave out "
            'debounce and on_conflict="replace"'
        )


def has_valid_window(new: NewJob) -> bool:
    """Return whether `check_replacement` finds nothing: only then the window is asked."""
    try:
        check_replacement(new)
    except InvalidArgument:
        return False
    return True


def window_length(new: NewJob) -> timedelta:
    """Return how long after its creation no prune deletes the key of the window.

    A debounced job holds its key for longer if it is not claimed by then.
    """
    span = new.delay if new.window is None else new.window.span or new.delay
    return ZERO if span is None else span


def is_unclaimed(job: Job | None) -> bool:
    """Return whether the job waits for its first claim: until then it holds a debounce key."""
    return job is not None and not job.token and job.state in WAITING


def replacement(holder: Job | None, new: NewJob, now: datetime) -> Change | None:
    """Return the change that gives the holder of a key the request of `new`.

    None if the holder is left alone: it was claimed, or is of another type. The event of the
    change has the id of `new` as detail, so that a repeated enqueue finds what it has replaced.
    """
    if holder is None or not is_unclaimed(holder) or holder.type != new.type:
        return None
    change = decide(holder, Edited(_request(holder, new, now)), new_id=_no_successor)
    return replace(change, error=new.id)


def _request(holder: Job, new: NewJob, now: datetime) -> JobEdit:
    """Return all that the holder takes over; whatever an edit may change belongs here."""
    return JobEdit(
        params=new.params,
        priority=None if new.priority == holder.priority else new.priority,
        delay=_delay(holder, new, now),
        at=new.at,
    )


def _delay(holder: Job, new: NewJob, now: datetime) -> timedelta | None:
    if new.delay is None or new.window is None or new.window.at_most is None:
        return new.delay
    return min(new.delay, holder.created_at + new.window.at_most - now)


def _no_successor() -> JobId:
    raise AssertionError("an edit makes no successor")
