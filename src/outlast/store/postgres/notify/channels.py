"""LISTEN/NOTIFY channels, one per schema and topic, and their payload codec."""

from collections.abc import Collection
from hashlib import sha256
from typing import Final, Literal

from outlast.store.contract.notifications import Notification, Topic

MAX_PAYLOAD_BYTES: Final = 7000
"""Bytes of a payload; the server allows 7,999. A longer list of queues is sent as empty."""

MAX_CHANNEL_LETTERS: Final = 63
"""Letters of a channel name; the server refuses longer ones."""

EVERYTHING: Final = Notification(frozenset({""}), ended=True, cancelled=True, schedules=True)
"""Delivered after a reconnect: any notification may have been missed."""


def channel(schema: str, topic: Topic | Literal["echo"]) -> str:
    """Return the channel of a topic, or of the round trip that tests a connection.

    A schema name that is too long is replaced by its digest.
    """
    name = f"{schema}_{topic}"
    if len(name) <= MAX_CHANNEL_LETTERS:
        return name
    return f"outlast_{sha256(schema.encode()).hexdigest()[:32]}_{topic}"


def topic_of(channel: str) -> Topic:
    """Return the topic of a channel."""
    return Topic(channel.rpartition("_")[2])


def payload(queues: Collection[str]) -> str:
    """Return the payload that names queues with work; empty for any queue."""
    text = " ".join(sorted(queues))
    return text if len(text) <= MAX_PAYLOAD_BYTES else ""


def encode(schema: str, notification: Notification) -> dict[str, str]:
    """Return the payloads of a notification by channel."""
    payloads = {Topic.WORK: payload(notification.queues)}
    topics = sorted(notification.topics)
    return {channel(schema, topic): payloads.get(topic, "") for topic in topics}


def decode(topic: Topic, text: str) -> Notification:
    """Return the notification of a received payload."""
    queues = frozenset(text.split()) or frozenset({""})
    return Notification(
        queues if topic is Topic.WORK else frozenset(),
        ended=topic is Topic.ENDED,
        cancelled=topic is Topic.CANCELLED,
        schedules=topic is Topic.SCHEDULES,
    )


def merged(one: Notification, other: Notification) -> Notification:
    """Return one notification with the content of both."""
    return Notification(
        one.queues | other.queues,
        ended=one.ended or other.ended,
        cancelled=one.cancelled or other.cancelled,
        schedules=one.schedules or other.schedules,
    )
