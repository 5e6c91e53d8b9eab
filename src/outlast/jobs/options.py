"""Options of one enqueue, validated and turned into a NewJob."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from outlast.core.delivery import Delivery
from outlast.core.duration import Duration, parse_duration
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, NewJob, Slot
from outlast.core.limits import check_key, check_name, check_priority
from outlast.core.metadata import extended
from outlast.core.retry import MAX_ATTEMPTS
from outlast.errors import InvalidArgument, InvalidJob
from outlast.jobs.policy import Policy

OnConflict = Literal["return", "skip", "reject"]

_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_MAX_BITS: Final = 64
_ON_CONFLICT: Final = ("return", "skip", "reject")


def new_job(
    policy: Policy,
    *,
    delay: Duration | None = None,
    at: datetime | None = None,
    key: str | None = None,
    bucket: str | None = None,
    active_key: str | None = None,
    priority: int | None = None,
    queue: str | None = None,
    slot: datetime | Slot | None = None,
    max_attempts: int | None = None,
    start_within: Duration | None = None,
    group_id: str | None = None,
    tags: Iterable[str] | None = None,
    headers: Mapping[str, str] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> NewJob:
    """Return a job of that type without id and params; `JobFactory` fills these in.

    InvalidJob names the option that cannot be used.
    """
    span, moment = check_due(delay, at)
    try:
        return NewJob(
            id=JobId(""),
            type=policy.name,
            params="",
            name=policy.name,
            queue=policy.queue if queue is None else check_name(queue, what="queue"),
            delivery=policy.delivery,
            priority=policy.priority if priority is None else check_whole_priority(priority),
            max_attempts=_attempts(max_attempts, policy),
            delay=span,
            at=moment,
            start_within=_span(start_within, "start_within"),
            slot=_slot(slot, policy),
            key=_key(key, bucket),
            active_key=None if active_key is None else check_key(active_key, what="active_key"),
            group_id=None if group_id is None else check_key(group_id, what="group_id"),
            metadata=extended(policy.metadata, headers=headers, tags=tags, meta=meta),
        )
    except InvalidArgument as error:
        raise InvalidJob(str(error)) from error


def check_due(
    delay: Duration | None, at: datetime | None
) -> tuple[timedelta | None, datetime | None]:
    """Return the delay or the moment at which a job is due; at most one of them is not None."""
    if delay is not None and at is not None:
        raise InvalidJob("delay and at were both given; a job is due once, so give one of them")
    return _span(delay, "delay"), None if at is None else _moment(at, "at")


def check_whole_priority(value: int) -> int:
    """Return `value` if it is a valid priority; InvalidArgument otherwise."""
    return check_priority(_whole(value, "priority"))


def check_on_conflict(value: str) -> None:
    """Raise InvalidJob unless `value` is a known conflict policy."""
    if value not in _ON_CONFLICT:
        raise InvalidJob(f"on_conflict is {value!r:.80}; use {', '.join(_ON_CONFLICT)}")


class JobFactory:
    """Creates jobs that differ only in id and params, faster than NewJob's own __init__.

    A frozen dataclass sets each field through `object.__setattr__`; here all are set at once.
    """

    __slots__ = ("_fixed",)

    def __init__(self, like: NewJob) -> None:
        self._fixed = dict(vars(like))

    def make(self, job_id: JobId, params: str) -> NewJob:
        """Return a job with this id and payload."""
        job: NewJob = _new(NewJob)
        fields = self._fixed.copy()
        fields["id"] = job_id
        fields["params"] = params
        _set(job, "__dict__", fields)
        return job


_new: Any = object.__new__
_set: Any = object.__setattr__


def _attempts(value: int | None, policy: Policy) -> int | None:
    if value is None:
        return policy.retry.max_attempts
    if policy.delivery is Delivery.ONCE:
        raise InvalidJob(
            f'max_attempts was given, but "{policy.name}" is delivered once and never runs again; '
            "leave it out"
        )
    if not 1 <= _whole(value, "max_attempts") <= MAX_ATTEMPTS:
        raise InvalidJob(f"max_attempts is {value}; use a whole number from 1 to {MAX_ATTEMPTS:,}")
    return value


def _whole(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJob(f"{what} is {value!r:.80}; use a whole number")
    if value.bit_length() > _MAX_BITS:  # Python does not format very long numbers
        raise InvalidJob(f"{what} has more than 64 bits; use a smaller number")
    return value


def _span(value: Duration | None, what: str) -> timedelta | None:
    if value is None:
        return None
    try:
        return parse_duration(value, what=what)
    except ValueError as error:
        raise InvalidJob(str(error)) from error


def _moment(value: datetime, what: str) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidJob(f"{what} is {value!r:.80}; use a datetime with a time zone")
    if not _EARLIEST <= value < _LATEST:
        raise InvalidJob(f"{what} is {value}; it must lie between 1970 and 9000")
    return value.astimezone(UTC)


def _slot(value: datetime | Slot | None, policy: Policy) -> Slot | None:
    if value is None:
        return None
    if not isinstance(value, Slot):
        return Slot(series=policy.name, at=_moment(value, "slot"))
    if policy.delivery is Delivery.ONCE and value.series != policy.name:
        raise InvalidJob(
            f'slot is of series {value.series!r:.80}; the slots of "{policy.name}", which is '
            "delivered once, are its own: give the moment alone"
        )
    return Slot(series=check_name(value.series, what="series"), at=_moment(value.at, "slot"))


def _key(key: str | None, bucket: str | None) -> DedupeKey | None:
    if key is None:
        if bucket is not None:
            raise InvalidJob("bucket was given without key; a bucket narrows a key, so give both")
        return None
    checked = check_key(bucket or "", what="bucket", empty=True)
    return DedupeKey(key=check_key(key, what="key"), bucket=checked)
