"""The log of one run in memory: bounded, and taken in pieces by the code that stores it."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from outlast.core.run import Lease
from outlast.core.run_log import (
    CHUNKS_PER_LOG,
    Entry,
    LogChunk,
    LogWrite,
    encode,
    size_of,
    to_text,
)

MIN_CHUNK: Final = 1024
"""Bytes of lines in one chunk at least."""


class RunLog:
    """Takes the lines of a run from any thread; keeps the head and the tail within `limit` bytes.

    Only lines that are not stored yet are in memory.
    """

    __slots__ = (
        "_chunk_size",
        "_count",
        "_dropped",
        "_half",
        "_head_bytes",
        "_is_closed",
        "_last",
        "_lock",
        "_news",
        "_notify",
        "_tail",
        "_tail_bytes",
        "_taken",
        "lease",
        "level",
        "limit",
    )

    def __init__(
        self,
        lease: Lease,
        *,
        level: int,
        limit: int,
        notify: "Callable[[RunLog], None] | None" = None,
    ) -> None:
        """Create the empty log of a run.

        `notify` is called on the thread of the handler when there is a line to take again.
        """
        self.lease = lease
        self.level = level
        self.limit = limit
        self._notify = notify
        self._half = limit // 2
        self._chunk_size = max(MIN_CHUNK, limit // CHUNKS_PER_LOG)
        self._lock = threading.Lock()
        self._count = 0
        self._head_bytes = 0
        self._tail_bytes = 0
        self._last: _Chunk | None = None
        self._tail: deque[_Chunk] | None = None  # None: the head has room
        self._news: dict[int, _Chunk] = {}
        self._dropped: list[int] = []
        self._taken: LogWrite | None = None
        self._is_closed = False

    def add(self, entry: Entry) -> None:
        """Add a line; ignored once the log is closed."""
        line = encode(entry, self._chunk_size)
        size = size_of(line) + 1
        with self._lock:
            if self._is_closed:
                return
            self._count += 1
            is_first = not self._news
            chunk = self._chunk_for(size)
            chunk.lines.append(line)
            chunk.count += 1
            chunk.size += size
            self._news[chunk.first] = chunk
        if is_first and self._notify is not None:
            self._notify(self)

    @property
    def has_news(self) -> bool:
        """Whether there are lines that are not known to be stored."""
        return bool(self._news) or self._taken is not None

    def take(self) -> LogWrite | None:
        """Return what is not known to be stored; `stored` ends that, another `take` adds to it."""
        with self._lock:
            if self._news:
                chunks = tuple(chunk.written() for chunk in self._news.values())
                new = LogWrite(chunks, tuple(self._dropped))
                self._taken = new if self._taken is None else self._taken.then(new)
                for chunk in self._news.values():
                    chunk.leave(keep=chunk is self._last)
                self._news, self._dropped = {}, []
            return self._taken

    def stored(self, write: LogWrite) -> None:
        """Note that what `take` returned is stored."""
        with self._lock:
            if self._taken is write:
                self._taken = None

    def receive(self, write: LogWrite) -> None:
        """Add what was taken from the log of this run in another process."""
        with self._lock:
            if not self._is_closed:
                self._taken = write if self._taken is None else self._taken.then(write)

    def end(self) -> None:
        """Take no more lines."""
        with self._lock:
            self._is_closed = True

    def close(self) -> LogWrite | None:
        """Take no more lines; return what is not known to be stored."""
        self.end()
        return self.take()

    def _chunk_for(self, size: int) -> "_Chunk":
        """Return the chunk for a line of `size` bytes; drops the oldest chunks of a full tail."""
        if self._tail is None and self._head_bytes + size <= self._half:
            self._head_bytes += size
            return self._fitting(size)
        if self._tail is None:
            self._tail, self._last = deque(), None
        chunk = self._fitting(size)
        if not self._tail or self._tail[-1] is not chunk:
            self._tail.append(chunk)
        self._tail_bytes += size
        while self._tail_bytes > self._half and len(self._tail) > 1:
            self._drop(self._tail.popleft())
        return chunk

    def _fitting(self, size: int) -> "_Chunk":
        """Return the last chunk if the line fits, otherwise a new one."""
        if self._last is None or self._last.size + size > self._chunk_size:
            if self._last is not None and self._last.first not in self._news:
                self._last.lines.clear()
            self._last = _Chunk(self._count)
        return self._last

    def _drop(self, chunk: "_Chunk") -> None:
        self._tail_bytes -= chunk.size
        self._news.pop(chunk.first, None)
        if chunk.was_taken:
            self._dropped.append(chunk.first)


class _Chunk:
    """Lines that are stored together, under the number of the first one."""

    __slots__ = ("count", "first", "lines", "size", "was_taken")

    def __init__(self, first: int) -> None:
        self.first = first
        self.count = 0
        self.size = 0
        self.lines: list[str] = []
        self.was_taken = False

    def written(self) -> LogChunk:
        return LogChunk(self.first, self.count, to_text(self.lines))

    def leave(self, *, keep: bool) -> None:
        """Forget the lines of a chunk that is full."""
        self.was_taken = True
        if not keep:
            self.lines.clear()
