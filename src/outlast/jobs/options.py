"""Options of one enqueue, validated and turned into a NewJob."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypedDict

from outlast.core.delivery import Delivery
from outlast.core.duration import Duration, parse_duration
from outlast.core.ids import JobId
from outlast.core.job import NewJob, Slot
from outlast.core.limits import check_key, check_name, check_priority
from outlast.core.metadata import extended
from outlast.core.retry import MAX_ATTEMPTS
from outlast.errors import InvalidJob
from outlast.jobs.policy import Policy
from outlast.jobs.uniqueness import KeyUntil, OnConflict, Uniqueness, UniqueOptions

_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_MAX_BITS: Final = 64


class JobOptions(TypedDict, total=False):
    """Options of one job, as in `JobType.options`."""

    delay: Duration | None
    at: datetime | None
    key: str | None
    bucket: str | None
    key_until: KeyUntil | None
    unique_for: Duration | None
    debounce: Duration | None
    at_most: Duration | None
    priority: int | None
    queue: str | None
    slot: datetime | Slot | None
    max_attempts: int | None
    start_within: Duration | None
    group_id: str | None
    tags: Iterable[str] | None
    headers: Mapping[str, str] | None
    meta: Mapping[str, Any] | None
    on_conflict: OnConflict | None
    tx: Any


def new_job(
    policy: Policy,
    *,
    delay: Duration | None = None,
    at: datetime | None = None,
    key: str | None = None,
    bucket: str | None = None,
    on_conflict: OnConflict | None = None,
    key_until: KeyUntil | None = None,
    unique_for: Duration | None = None,
    debounce: Duration | None = None,
    at_most: Duration | None = None,
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
    held: UniqueOptions = {
        "on_conflict": on_conflict,
        "key_until": key_until,
        "unique_for": unique_for,
        "debounce": debounce,
        "at_most": at_most,
    }
    try:
        unique = policy.unique.over(**held)
        _require_key(key, {**held, "bucket": bucket})
        return NewJob(
            id=JobId(""),
            type=policy.name,
            params="",
            name=policy.name,
            queue=policy.queue if queue is None else check_name(queue, what="queue"),
            delivery=policy.delivery,
            priority=policy.priority if priority is None else check_whole_priority(priority),
            max_attempts=_attempts(max_attempts, policy),
            delay=_debounced(unique, key, span, moment),
            at=moment,
            start_within=_span(start_within, "start_within"),
            slot=_slot(slot, policy),
            **_unique_fields(unique, key, bucket, slot),
            group_id=None if group_id is None else check_key(group_id, what="group_id"),
            metadata=extended(policy.metadata, headers=headers, tags=tags, meta=meta),
        )
    except ValueError as error:
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


def _require_key(key: str | None, options: Mapping[str, object]) -> None:
    """Raise InvalidJob for an option that says something about a key, if there is none."""
    if key is not None:
        return
    given = [name for name, value in options.items() if value is not None]
    if options["on_conflict"] == "replace":
        given.append('on_conflict="replace"')
    if given := [name for name in given if name != "on_conflict"]:  # slots have it too
        raise InvalidJob(f"{given[0]} was given without key; it says what a key does, so give both")


def _unique_fields(
    unique: Uniqueness, key: str | None, bucket: str | None, slot: object
) -> dict[str, Any]:
    if key is None:
        return {}
    if slot is not None and unique.replaces:
        what = 'on_conflict="replace"' if unique.debounce is None else "debounce"
        raise InvalidJob(
            f"{what} and slot were both given; a job for a slot takes no other request, so leave "
            "one of them out"
        )
    return unique.fields(key, bucket)


def _debounced(
    unique: Uniqueness, key: str | None, delay: timedelta | None, at: datetime | None
) -> timedelta | None:
    """Return the delay of the job; for a debounced one, the wait for a further enqueue."""
    if key is None or unique.debounce is None:
        return delay
    if delay is not None or at is not None:
        raise InvalidJob(
            f"debounce was given with {'at' if delay is None else 'delay'}; a debounced job is "
            "due when no further one came for that long, so leave the other out"
        )
    return unique.debounce
