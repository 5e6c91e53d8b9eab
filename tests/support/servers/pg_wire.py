"""PostgreSQL's messages, cut out of a stream of bytes: enough of them for a proxy to understand."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

START: Final = b""
"""The kind of a client's first messages, which carry no letter: they begin with their length."""

SSL, GSS, CANCEL = 80877103, 80877104, 80877102
"""Codes of first messages that are not the start of a session."""

READY: Final = b"Z"
IDLE: Final = b"I"
"""What READY says outside a transaction: what came before is committed, or undone."""

QUERY, PARSE, BIND, SYNC, CALL, TERMINATE = b"Q", b"P", b"B", b"S", b"F", b"X"
KEY: Final = b"K"
MOST: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its letter, its content, and the bytes that it was."""

    kind: bytes
    body: bytes
    raw: bytes

    @property
    def code(self) -> int:
        """Of a first message."""
        return int.from_bytes(self.body[:4], "big")

    @property
    def parameters(self) -> dict[str, str]:
        """Of the start of a session: who, which database, and more."""
        words = [_text(word) for word in self.body[4:].split(b"\0")]
        return dict(zip(words[::2], words[1::2], strict=False))

    @property
    def asks_for_encryption(self) -> bool:
        """The answer to it is one letter and no message."""
        return self.kind == START and self.code in {SSL, GSS}

    @property
    def makes_ready(self) -> bool:
        """Whether the server ends its answer to this with READY."""
        if self.kind == START:
            return self.code not in {SSL, GSS, CANCEL}
        return self.kind in {QUERY, SYNC, CALL}


class Messages:
    """The messages of one direction; what is not complete yet is kept until it is."""

    def __init__(self, *, letters: bool) -> None:
        self._letters = letters
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Those that are complete now."""
        self._rest += data
        while (message := self._next()) is not None:
            if message.kind == START and not message.asks_for_encryption:
                self._letters = True
            yield message

    def _next(self) -> Message | None:
        head = 1 if self._letters else 0
        if len(self._rest) < head + 4:
            return None
        length = int.from_bytes(self._rest[head : head + 4], "big")
        if not 4 <= length <= MOST:
            raise ValueError(f"{length} bytes is no message of PostgreSQL's; is this TLS?")
        if len(self._rest) < head + length:
            return None
        raw = bytes(self._rest[: head + length])
        del self._rest[: head + length]
        return Message(raw[:head], raw[head + 4 :], raw)


class Statements:
    """Which statement a client's message runs, also when it was prepared earlier."""

    def __init__(self) -> None:
        self._prepared: dict[bytes, str] = {}

    def run_by(self, message: Message) -> str | None:
        """The SQL that this message runs; None if it runs nothing."""
        if message.kind == QUERY:
            return _text(message.body.rstrip(b"\0"))
        if message.kind == PARSE:
            name, _, rest = message.body.partition(b"\0")
            self._prepared[name] = _text(rest.partition(b"\0")[0])
        if message.kind == BIND:
            _portal, _, rest = message.body.partition(b"\0")
            return self._prepared.get(rest.partition(b"\0")[0])
        return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
