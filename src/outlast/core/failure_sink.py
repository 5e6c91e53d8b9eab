"""A sink of failures, and what it may see of them."""

import inspect
import json
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from outlast.core.decide import Change
from outlast.core.failure import MAX_FRAMES, ExceptionInfo, Failure, Frame, Sink
from outlast.core.limits import MAX_REASON, is_cut, repr_short, truncate
from outlast.core.redact import REDACTED, redact, redacted_values, scrub, traceback_locations
from outlast.core.run import Claim
from outlast.core.state import RunStatus, State
from outlast.errors import InvalidType

COUNTED: Final = frozenset({RunStatus.FAILED, RunStatus.LOST})
"""How an attempt ends that counts against its job."""

MOST_CAUSES: Final = 10
MOST_SHOWN: Final = 1_000


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt as it was, before anything is taken out."""

    claim: Claim
    change: Change
    raised: tuple[ExceptionInfo, ...]


@dataclass(frozen=True, slots=True)
class FailureSink:
    """A sink, and the fields of payloads it may see; it sees the names of all others."""

    sink: Sink
    show: frozenset[str] = frozenset()

    @classmethod
    def new(cls, sink: Sink, show: Iterable[str] = ()) -> "FailureSink":
        """Both checked; InvalidType says what cannot be."""
        call = getattr(sink, "__call__", None)  # noqa: B004 - an object's own may be a coroutine's
        if not callable(sink) or isinstance(sink, type):
            raise InvalidType(
                f"a sink of failures is {repr_short(sink)}; give a function that takes one"
            )
        if inspect.iscoroutinefunction(sink) or inspect.iscoroutinefunction(call):
            raise InvalidType(
                "a sink of failures is async; it has a thread, so give a plain function"
            )
        if isinstance(show, str):
            raise InvalidType(f"show is {repr_short(show)}; give a list of field names")
        names = frozenset(show)
        if len(names) > MOST_SHOWN or not all(isinstance(name, str) and name for name in names):
            raise InvalidType(f"show must be a list of at most {MOST_SHOWN:,} names of fields")
        return cls(sink, names)

    def to_failure(self, noted: FailedAttempt, *, worker: str) -> Failure:
        """What its sink is told."""
        claim, change = noted.claim, noted.change
        payload = _parsed(claim.params)
        values = set(redacted_values(payload, self.show))
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
            traceback=_without(values, change.error or ""),
            raised=tuple(
                replace(each, message=truncate(_without(values, each.message), MAX_REASON))
                for each in noted.raised
            ),
        )


def raised_by(error: BaseException | None) -> tuple[ExceptionInfo, ...]:
    """The exception, then what it was raised from, and so on; no more than a few."""
    found: list[BaseException] = []
    while error is not None and len(found) < MOST_CAUSES:  # which also ends a circle
        found.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return tuple(_raised(each) for each in found)


def _raised(error: BaseException) -> ExceptionInfo:
    frames = traceback.extract_tb(error.__traceback__, limit=-MAX_FRAMES)
    return ExceptionInfo(
        type=type(error).__name__,
        module=type(error).__module__,
        message=_words(error),
        frames=tuple(
            Frame(each.filename, each.lineno or 0, each.name, each.line or "") for each in frames
        ),
    )


def _words(error: BaseException) -> str:
    try:
        return truncate(str(error))
    except Exception:  # noqa: BLE001 - the code of whoever wrote it
        return "[unprintable]"


def _without(values: set[str], text: str) -> str:
    if not is_cut(text):
        return scrub(text, values)
    # Half of a value may stand at its end, where nobody would know it again.
    return traceback_locations(text) if "\n" in text else REDACTED


def _parsed(params: str) -> dict[str, Any]:
    try:
        found = json.loads(params)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
