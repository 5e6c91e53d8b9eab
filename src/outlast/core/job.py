"""Jobs: what was requested, and the state of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from outlast.core.delivery import Delivery
from outlast.core.envelope import plain
from outlast.core.ids import JobId
from outlast.core.limits import read_json
from outlast.core.metadata import from_text
from outlast.core.state import FINAL, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One occurrence of a series; a slot is claimed at most once, for ever."""

    series: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupeKey:
    """A dedupe key: one job per key and bucket, for ever."""

    key: str
    bucket: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWindow:
    """A key of one job at a time, for a `span` from its creation; None: until its first claim.

    `at_most` is how long after its creation an enqueue may put off its due time.
    """

    key: str
    bucket: str = ""
    span: timedelta | None = None
    at_most: timedelta | None = None

    @property
    def scope(self) -> str:
        """The kind of key; keys of different kinds do not meet."""
        return "debounce" if self.span is None else "window"

    @property
    def name(self) -> tuple[str, str, str]:
        """Scope, key and bucket: one job at a time has them."""
        return self.scope, self.key, self.bucket


@dataclass(frozen=True, kw_only=True)  # no slots: enqueue_many fills `__dict__` directly
class NewJob:
    """A job to be stored.

    It is due `at` a time, or `delay` after the store accepts it, or immediately.
    """

    id: JobId
    type: str
    params: str
    name: str
    queue: str = "default"
    delivery: Delivery = Delivery.LEASE
    priority: int = 0
    max_attempts: int | None = 5
    delay: timedelta | None = None
    at: datetime | None = None
    start_within: timedelta | None = None
    slot: Slot | None = None
    key: DedupeKey | None = None
    active_key: str | None = None
    window: KeyWindow | None = None
    replaces: bool = False  # a holder of its key that was never claimed takes its request
    group_id: str | None = None
    member: bool = False  # of that group; a group_id alone is only a label
    template_id: str | None = None
    template_at: datetime | None = None  # when the used version of the template was written
    schedule_id: str | None = None
    retry_of: JobId | None = None
    metadata: str | None = None  # headers, tags and meta as stored text; see core/metadata.py

    @property
    def is_plain(self) -> bool:
        """Whether no stored row can conflict with it: no key, no slot, no predecessor."""
        return (
            self.key is None
            and self.slot is None
            and self.active_key is None
            and self.window is None
            and not self.replaces
            and self.retry_of is None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as stored, at one moment.

    The request (type, params, queue, …) never changes after the first claim; the other fields
    follow its runs.
    """

    id: JobId
    seq: int
    type: str
    name: str
    params: str
    queue: str
    delivery: Delivery
    priority: int
    position: int
    max_attempts: int | None
    created_at: datetime
    available_at: datetime
    slot_at: datetime | None
    start_deadline: datetime | None
    retry_of: JobId | None
    root_id: JobId
    group_id: str | None
    template_id: str | None
    template_at: datetime | None
    schedule_id: str | None
    state: State
    reason: str | None
    token: int
    failures: int
    losses: int
    cancel_requested: bool
    holder: str | None
    boot_id: str | None
    started_at: datetime | None
    finished_at: datetime | None
    progress: str | None = None  # JSON: last progress of the open run
    active_key: str | None = None  # as requested; its chain holds it until the chain ends
    metadata: str | None = None  # JSON: headers, tags and meta; None if it has none

    @property
    def decoded_params(self) -> dict[str, Any]:
        """The params as JSON values; InvalidParams if the stored text cannot be read.

        PayloadUnreadable if a codec or a key is needed that the app does not have.
        """
        what = f"params of job {self.id}"
        values: dict[str, Any] = read_json(plain(self.params, what), what=what)
        return values

    @property
    def queued_at(self) -> datetime:
        """When the job was accepted into its queue: its creation time."""
        return self.created_at

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers given at the enqueue; empty if there are none."""
        return from_text(self.metadata).headers

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags given at the enqueue; empty if there are none."""
        return from_text(self.metadata).tags

    @property
    def meta(self) -> Mapping[str, Any]:
        """Meta given at the enqueue; empty if there is none."""
        return from_text(self.metadata).meta

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL

    @property
    def attempt(self) -> int:
        """Number of its present, next or last attempt, from 1."""
        has_failed = self.state in {State.FAILED, State.DEAD_LETTER} and self.failures > 0
        return self.failures + (not has_failed)

    @property
    def attempt_text(self) -> str:
        """Number of the attempt in words: `attempt 2 of 5`."""
        most = "" if self.max_attempts is None else f" of {self.max_attempts}"
        return f"attempt {self.attempt}{most}"
