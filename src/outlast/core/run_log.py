"""The log of a run: its lines, the chunks that a store keeps, and their text form.

A chunk is some successive lines of one run, under the number of its first line. Chunks from the
middle of a long log are dropped, so the numbers tell how many lines are missing.

`to_text` and `from_text` are the only code that knows how lines become stored text.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from json.encoder import encode_basestring as quoted
from typing import Final, NamedTuple

from outlast.core.duration import MICROSECOND
from outlast.core.limits import is_storable

MAX_LOG: Final = 256 * 1024
"""Bytes of lines kept per run."""

MAX_PAID_LOG: Final = 16 * 1024
"""Bytes of lines kept per run on a store where each record has a price."""

CHUNKS_PER_LOG: Final = 32
"""Chunks of a log that is full; the last chunk is written again until it is full."""

MAX_CHUNK: Final = 64 * 1024
"""Bytes of text in one stored chunk; more than the lines, since a codec may lengthen them."""

MAX_LINE_NUMBER: Final = 2**31 - 1

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = 200_000_000_000_000_000  # microseconds; in the year 8307
_CUT: Final = " … [cut] … "


class LogChunk(NamedTuple):
    """Successive lines of a run as a store keeps them; `first` is the number of the first line."""

    first: int
    lines: int
    text: str

    @property
    def last(self) -> int:
        """Number of the last line."""
        return self.first + self.lines - 1


class LogWrite(NamedTuple):
    """What to write to the log of a run: chunks by their first line, and chunks to drop.

    A chunk replaces the stored one with the same first line.
    """

    chunks: tuple[LogChunk, ...]
    dropped: tuple[int, ...] = ()

    @property
    def storable(self) -> tuple[LogChunk, ...]:
        """The chunks that every store can keep; others are left out."""
        return tuple([chunk for chunk in self.chunks if _is_storable(chunk)])

    def then(self, later: "LogWrite") -> "LogWrite":
        """Return one write with the effect of this one and a later one."""
        chunks = {chunk.first: chunk for chunk in (*self.chunks, *later.chunks)}
        dropped = tuple(dict.fromkeys((*self.dropped, *later.dropped)))
        kept = tuple(chunk for first, chunk in sorted(chunks.items()) if first not in dropped)
        return LogWrite(kept, dropped)


class Entry(NamedTuple):
    """One line before it is stored: time in microseconds, level, logger and text."""

    at: int
    level: str
    logger: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line that a run logged.

    Attributes:
        token: Token of the run.
        number: Number of the line in its run, from 1.
        at: Time of the record, by the clock of the worker.
        level: Name of its level, such as "INFO".
        logger: Name of its logger.
        text: The formatted record, with its traceback; it may have several lines.
        omitted: Lines before this one that were left out because the log was too long.
    """

    token: int
    number: int
    at: datetime
    level: str
    logger: str
    text: str
    omitted: int = 0


def encode(entry: Entry, limit: int) -> str:
    """Return one line as text without line breaks, within `limit` bytes; a longer one is cut."""
    encoded = _dumps(entry)
    room = limit
    while size_of(encoded) > limit and room > 0:
        room //= 2
        encoded = _dumps(entry._replace(text=_middle_cut(entry.text, room)))
    return encoded


def size_of(line: str) -> int:
    """Return the bytes of an encoded line."""
    return len(line) if line.isascii() else len(line.encode())


def to_text(lines: Iterable[str]) -> str:
    """Return the stored text of encoded lines."""
    return "\n".join(lines)


def from_text(text: str) -> list[Entry]:
    """Return the lines of a stored text; ValueError if it is not one."""
    try:
        entries = [Entry(*json.loads(line)) for line in text.split("\n")]
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not all(map(_is_entry, entries)):
        raise ValueError("a line of a log has other fields")
    return entries


def _is_entry(entry: Entry) -> bool:
    at, *texts = entry
    is_time = isinstance(at, int) and 0 <= at < _LATEST
    return is_time and all(isinstance(each, str) for each in texts)


def read(token: int, chunks: Sequence[LogChunk], *, after: int = 0) -> Iterator[LogLine]:
    """Yield the lines of a run after the line with the number `after`, in order."""
    known = after
    for chunk in chunks:
        for number, entry in enumerate(_entries(chunk), chunk.first):
            if number > known:
                yield _line(token, number, entry, omitted=number - known - 1)
                known = number
        known = max(known, chunk.last)


def _line(token: int, number: int, entry: Entry, *, omitted: int) -> LogLine:
    return LogLine(
        token=token,
        number=number,
        at=_EPOCH + entry.at * MICROSECOND,
        level=entry.level,
        logger=entry.logger,
        text=entry.text,
        omitted=omitted,
    )


def _entries(chunk: LogChunk) -> list[Entry]:
    """Return the lines of a chunk; one that says so if its text is damaged."""
    try:
        return from_text(chunk.text)
    except ValueError:
        return [Entry(0, "ERROR", "outlast", f"{chunk.lines} lines cannot be read")]


def _dumps(entry: Entry) -> str:
    """Return the line as JSON; `json.dumps` of a list takes four times as long."""
    at, level, logger, text = entry
    line = f"[{at},{quoted(level)},{quoted(logger)},{quoted(text)}]"
    return line if line.isascii() or is_storable(line) else json.dumps(entry)


def _middle_cut(text: str, room: int) -> str:
    """Return the head and the tail of a text: a traceback names its error at the end."""
    if len(text) <= room:
        return text
    half = max(0, room - len(_CUT)) // 2
    return text[:half] + _CUT + (text[-half:] if half else "")


def _is_storable(chunk: LogChunk) -> bool:
    is_numbered = chunk.first > 0 and chunk.lines > 0 and chunk.last <= MAX_LINE_NUMBER
    return is_numbered and is_storable(chunk.text) and size_of(chunk.text) <= MAX_CHUNK
