"""The protocol between a worker and a handler process: one JSON message per line."""

import json
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from outlast.core.delivery import Delivery
from outlast.core.failure import ExceptionInfo, Frame
from outlast.core.failure_sink import raised_by
from outlast.core.outcome import Cancel, HandlerOutcome, RetryAfter, Skip, Snooze
from outlast.core.run import Claim
from outlast.core.run_log import LogChunk, LogWrite

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Largest message in bytes; a process that sends more is killed."""

_MICROSECOND: Final = timedelta(microseconds=1)
_OUTCOMES: Final = {kind.__name__: kind for kind in (Snooze, RetryAfter, Skip, Cancel)}


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as one line of JSON."""
    return json.dumps(message).encode() + b"\n"


class Capture(NamedTuple):
    """How a handler process captures what a run logs; `root` is the level of the root logger."""

    level: int
    limit: int
    root: int


def encode_task(claim: Claim, address: str, capture: Capture | None = None) -> dict[str, Any]:
    """Return the message that asks a handler process to run a claim."""
    slot_at = None if claim.slot_at is None else claim.slot_at.isoformat()
    return {"app": address, "capture": capture, "claim": {**asdict(claim), "slot_at": slot_at}}


def decode_task(message: dict[str, Any]) -> tuple[Claim, str, Capture | None]:
    """Return the claim, the app address and the capture of logs of a task message."""
    fields = message["claim"]
    slot = fields["slot_at"]
    slot_at = None if slot is None else datetime.fromisoformat(slot)
    delivery = Delivery(fields["delivery"])
    claim = Claim(**{**fields, "delivery": delivery, "slot_at": slot_at})
    capture = None if message["capture"] is None else Capture(*message["capture"])
    return claim, message["app"], capture


def encode_log(write: LogWrite) -> dict[str, Any]:
    """Return the message with lines that the handler logged."""
    return {"log": write.chunks, "dropped": write.dropped}


def decode_log(message: dict[str, Any]) -> LogWrite:
    """Return the lines of a message. Raises TypeError if it is malformed."""
    chunks = tuple(LogChunk(*chunk) for chunk in message["log"])
    if not all(map(_is_chunk, chunks)):
        raise TypeError("a chunk of a log has other fields")
    return LogWrite(chunks, tuple(map(int, message["dropped"])))


def _is_chunk(chunk: LogChunk) -> bool:
    kinds = (type(chunk.first), type(chunk.lines), type(chunk.text))
    return kinds == (int, int, str)


def encode_outcome(value: HandlerOutcome) -> dict[str, Any]:
    """Return the message of a handler outcome. Raises TypeError for an unknown outcome."""
    name = type(value).__name__
    if _OUTCOMES.get(name) is not type(value):
        raise TypeError(
            f"a handler process returned {name}; use Snooze, RetryAfter, Skip or Cancel"
        )
    delay = value.delay // _MICROSECOND if isinstance(value, Snooze | RetryAfter) else None
    return {"outcome": name, "delay": delay, "reason": getattr(value, "reason", None)}


def encode_raised(error: BaseException) -> list[dict[str, Any]]:
    """Return the exception and its causes for a message; none if their own code raises."""
    try:
        return [asdict(each) for each in raised_by(error)]
    except Exception:  # noqa: BLE001 - the run has its text
        return []


def decode_raised(message: list[dict[str, Any]]) -> tuple[ExceptionInfo, ...]:
    """Return the exception and its causes from a message."""
    return tuple(
        ExceptionInfo(**{**each, "frames": tuple(Frame(**frame) for frame in each["frames"])})
        for each in message
    )


def decode_outcome(message: dict[str, Any]) -> HandlerOutcome:
    """Return the handler outcome of a message. Raises ValueError if it is unknown."""
    delay, reason = message["delay"], message["reason"]
    match message["outcome"]:
        case "Snooze":
            return Snooze(timedelta(microseconds=delay), reason)
        case "RetryAfter":
            return RetryAfter(timedelta(microseconds=delay), reason)
        case "Skip":
            return Skip(reason)
        case "Cancel":
            return Cancel(reason)
        case other:
            raise ValueError(f"unknown outcome: {other!r:.80}")
