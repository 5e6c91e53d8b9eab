"""A failure sink with its redaction rules: failed attempts as the sink may see them."""

import inspect
import json
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from outlast.core.decide import Change
from outlast.core.error_message import error_message
from outlast.core.error_text import user_frames
from outlast.core.failure import (
    MAX_FRAMES,
    TRACEBACK_HEAD,
    ExceptionInfo,
    Failure,
    Frame,
    Sink,
    format_traceback,
)
from outlast.core.limits import MAX_REASON, is_cut, repr_short, truncate
from outlast.core.redact import redact, redacted_values
from outlast.core.run import Claim
from outlast.core.scrub import REDACTED, scrub
from outlast.core.state import RunStatus, State
from outlast.errors import InvalidType

COUNTED: Final = frozenset({RunStatus.FAILED, RunStatus.LOST})
"""Ends of a run that count as a failed attempt."""

MAX_CAUSES: Final = 10  # exceptions reported of one chain of causes
MAX_SHOWN_FIELDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt before redaction."""

    claim: Claim
    change: Change
    raised: tuple[ExceptionInfo, ...]


@dataclass(frozen=True, slots=True)
class FailureSink:
    """A sink, and the payload fields whose values it may see."""

    sink: Sink
    show: frozenset[str] = frozenset()

    @classmethod
    def new(cls, sink: Sink, show: Iterable[str] = ()) -> "FailureSink":
        """Return a sink after checking both arguments; InvalidType says what is wrong."""
        call = getattr(sink, "__call__", None)  # noqa: B004 - it may be a coroutine function
        if not callable(sink) or isinstance(sink, type):
            raise InvalidType(
                f"a failure sink is {repr_short(sink)}; give a function that takes a Failure"
            )
        if inspect.iscoroutinefunction(sink) or inspect.iscoroutinefunction(call):
            raise InvalidType(
                "a failure sink is async; it runs in its own thread, so give a plain function"
            )
        if isinstance(show, str):
            raise InvalidType(f"show is {repr_short(show)}; give a list of field names")
        names = frozenset(show)
        if len(names) > MAX_SHOWN_FIELDS or not all(
            isinstance(name, str) and name for name in names
        ):
            raise InvalidType(
                f"show is no list of names; give at most {MAX_SHOWN_FIELDS:,} field names"
            )
        return cls(sink, names)

    def to_failure(self, attempt: FailedAttempt, *, worker: str) -> Failure:
        """Return the failure with every value removed that the sink may not see."""
        claim, change = attempt.claim, attempt.change
        payload = _parsed(claim.params)
        values = set(redacted_values(payload, self.show))
        raised = tuple(_without_values(each, values) for each in attempt.raised)
        assert change.move.run is not None
        return Failure(
            job_id=claim.job_id,
            run_id=claim.run_id,
            job_type=claim.type,
            attempt=claim.failures + 1,
            max_attempts=claim.max_attempts,
            worker=worker,
            status=change.move.run,
            state=change.move.to,
            reason=change.reason and scrub(change.reason, values),
            retry_in=change.delay if change.move.to is State.RETRY_WAIT else None,
            payload=redact(payload, self.show),
            traceback=_traceback(change.error or "", raised, values),
            raised=tuple(
                replace(each, message=truncate(each.message, MAX_REASON)) for each in raised
            ),
        )


def raised_by(error: BaseException | None) -> tuple[ExceptionInfo, ...]:
    """Return the exception, the members of a group and the causes, outermost first, at most ten."""
    found: list[BaseException] = []
    pending = [error]
    while pending and len(found) < MAX_CAUSES:  # also ends a cycle
        each = pending.pop(0)
        if each is not None:
            found.append(each)
            members = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
            cause = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
            pending = [*members, cause, *pending]
    return tuple(_raised(each) for each in found)


def _raised(error: BaseException) -> ExceptionInfo:
    frames = user_frames(traceback.extract_tb(error.__traceback__, limit=-MAX_FRAMES))
    return ExceptionInfo(
        type=type(error).__name__,
        module=type(error).__module__,
        message=error_message(error),
        frames=tuple(
            Frame(each.filename, each.lineno or 0, each.name, each.line or "") for each in frames
        ),
    )


def _without_values(raised: ExceptionInfo, values: set[str]) -> ExceptionInfo:
    return replace(raised, message=_scrubbed(values, raised.message))


def _traceback(text: str, raised: tuple[ExceptionInfo, ...], values: set[str]) -> str:
    """Return the traceback, with frames of the exceptions: a message may look like a frame."""
    return format_traceback(raised) if TRACEBACK_HEAD in text else _scrubbed(values, text)


def _scrubbed(values: set[str], text: str) -> str:
    # A truncated text may end in a part of a value, which `scrub` cannot recognise.
    return REDACTED if is_cut(text) else scrub(text, values)


def _parsed(params: str) -> dict[str, Any]:
    try:
        found = json.loads(params)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
