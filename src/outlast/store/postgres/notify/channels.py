"""What is said on which channel: one for each topic of each schema."""

from collections.abc import Collection
from typing import Final

from outlast.store.contract.notifications import Notification, Topic

LONGEST: Final = 7000
"""Bytes of a payload; the server takes 7,999. More queues than fit are some queue."""

EVERYTHING: Final = Notification(frozenset({""}), ended=True, cancelled=True)
"""For after a silence: anything may have happened."""


def channel(schema: str, topic: Topic) -> str:
    """Where that topic's commits are told of."""
    return f"{schema}_{topic}"


def payload(queues: Collection[str]) -> str:
    """The queues that may have work; empty if that is not known."""
    text = " ".join(sorted(queues))
    return text if len(text) <= LONGEST else ""


def encode(schema: str, hint: Notification) -> dict[str, str]:
    """What is to be sent, by channel."""
    said = {Topic.WORK: payload(hint.queues), Topic.ENDED: "", Topic.CANCELLED: ""}
    return {channel(schema, topic): said[topic] for topic in sorted(hint.topics)}


def decode(topic: Topic, text: str) -> Notification:
    """The hint behind what was received."""
    queues = frozenset(text.split()) or frozenset({""})
    return Notification(
        queues if topic is Topic.WORK else frozenset(),
        ended=topic is Topic.ENDED,
        cancelled=topic is Topic.CANCELLED,
    )


def merged(one: Notification, other: Notification) -> Notification:
    return Notification(
        one.queues | other.queues,
        ended=one.ended or other.ended,
        cancelled=one.cancelled or other.cancelled,
    )
