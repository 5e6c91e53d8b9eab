"""What a worker and a handler's process say to each other: one line of JSON each."""

import json
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final

from outlast.core.delivery import Delivery
from outlast.core.outcome import Cancel, HandlerOutcome, RetryAfter, Skip, Snooze
from outlast.core.run import Claim

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""More than any message can need, in bytes: who sends more is broken."""

_MICROSECOND: Final = timedelta(microseconds=1)
_OUTCOMES: Final = {kind.__name__: kind for kind in (Snooze, RetryAfter, Skip, Cancel)}


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def encode_task(claim: Claim, address: str) -> dict[str, Any]:
    """What to run."""
    slot_at = None if claim.slot_at is None else claim.slot_at.isoformat()
    return {"app": address, "claim": {**asdict(claim), "slot_at": slot_at}}


def decode_task(message: dict[str, Any]) -> tuple[Claim, str]:
    """What is to be run, and where its app is."""
    fields = message["claim"]
    slot = fields["slot_at"]
    slot_at = None if slot is None else datetime.fromisoformat(slot)
    delivery = Delivery(fields["delivery"])
    return Claim(**{**fields, "delivery": delivery, "slot_at": slot_at}), message["app"]


def encode_outcome(value: HandlerOutcome) -> dict[str, Any]:
    """One of the values that are no results; TypeError for one that cannot be told."""
    name = type(value).__name__
    if _OUTCOMES.get(name) is not type(value):
        raise TypeError(f"a handler in a process of its own returned {name}, which it cannot")
    delay = value.delay // _MICROSECOND if isinstance(value, Snooze | RetryAfter) else None
    return {"outcome": name, "delay": delay, "reason": getattr(value, "reason", None)}


def decode_outcome(message: dict[str, Any]) -> HandlerOutcome:
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
            raise ValueError(f"no such outcome: {other!r:.80}")
