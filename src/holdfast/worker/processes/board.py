"""What a child holds, written where its supervisor can read it: memory both have mapped.

Writing costs no system call, and what is written outlives the writer, however it dies. Reading
needs no lock: an entry seen half-written names a lease that does not exist, and the store's fence
refuses whatever is done about it.
"""

import mmap
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.core.ids import JobId
from holdfast.core.run import Claim, Lease
from holdfast.core.span import MICROSECOND

HEAD: Final = struct.Struct("<qqqqq")  # last beat, entries, entry being stepped + 1, memory, ended
ENTRY: Final = struct.Struct("<16sqqqq")  # job id, started, deadline, executor, token
WHOLE: Final = struct.Struct("<q")
AT_BEAT, AT_ENTRIES, AT_STEP, AT_MEMORY, AT_ENDED = range(0, HEAD.size, WHOLE.size)
AT_TOKEN: Final = ENTRY.size - WHOLE.size
AT_EXECUTOR: Final = AT_TOKEN - WHOLE.size

ENTRIES: Final = 16_384
"""How many runs one child can hold; memory that nobody writes costs nothing."""

EXECUTORS: Final = ("none", "async", "thread", "process", "command")


@dataclass(frozen=True, slots=True)
class Entry:
    """A lease on the board; moments are of the monotonic clock, None before or without."""

    lease: Lease
    started: int | None
    deadline: int | None
    executor: str
    is_stepping: bool

    @property
    def has_returned(self) -> bool:
        """Whether its handler is done with, and only its end is not durable yet."""
        return self.started is not None and self.executor == "none"


class Board:
    """The shared memory, and how to read it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.memory = mmap.mmap(fd, HEAD.size + ENTRIES * ENTRY.size)

    @classmethod
    def new(cls) -> "Board":
        fd = anonymous_file("holdfast-board")
        os.ftruncate(fd, HEAD.size + ENTRIES * ENTRY.size)
        return cls(fd)

    @property
    def beat(self) -> int:
        """When its writer last showed life; 0 before the first time."""
        return self._whole(AT_BEAT)

    @property
    def memory_in_use(self) -> int:
        """In bytes, as its writer last said."""
        return self._whole(AT_MEMORY)

    @property
    def ended(self) -> int:
        """How many runs its writer has ended."""
        return self._whole(AT_ENDED)

    def entries(self) -> Iterator[Entry]:
        stepping = self._whole(AT_STEP) - 1
        for index in range(self._whole(AT_ENTRIES)):
            raw, started, deadline, executor, token = ENTRY.unpack_from(self.memory, _at(index))
            if token:
                lease = Lease(_job_id(raw), token)
                kind = EXECUTORS[executor]
                yield Entry(lease, started or None, deadline or None, kind, index == stepping)

    def close(self) -> None:
        self.memory.close()
        os.close(self.fd)

    def _whole(self, at: int) -> int:
        number: int = WHOLE.unpack_from(self.memory, at)[0]
        return number


class HeldOnBoard:
    """The child's own side: what it holds, and the signs of life it gives."""

    def __init__(self, board: Board, monotonic: Callable[[], int]) -> None:
        self._memory = board.memory
        self._monotonic = monotonic
        self._free = list(reversed(range(ENTRIES)))
        self._held: dict[JobId, tuple[Lease, int]] = {}
        self._used = 0
        self._ended = 0

    @property
    def room(self) -> int:
        return len(self._free)

    def take(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            index = self._free.pop()
            self._held[claim.job_id] = claim.lease, index
            # The token last: without it the entry is not there.
            ENTRY.pack_into(self._memory, _at(index), _raw(claim.job_id), 0, 0, 0, 0)
            self._write(_at(index) + AT_TOKEN, claim.token)
            if index >= self._used:
                self._used = index + 1
                self._write(AT_ENTRIES, self._used)

    def start(self, claim: Claim, *, executor: str, limit: timedelta | None) -> None:
        held = self._held.get(claim.job_id)
        if held is not None:
            now, kind = self._monotonic(), EXECUTORS.index(executor)
            deadline = now + limit // MICROSECOND if limit else 0
            raw = _raw(claim.job_id)
            ENTRY.pack_into(self._memory, _at(held[1]), raw, now, deadline, kind, claim.token)

    def move(self, lease: Lease, executor: str) -> None:
        if self.has(lease):
            _, index = self._held[lease.job_id]
            self._write(_at(index) + AT_EXECUTOR, EXECUTORS.index(executor))

    def expire(self, lease: Lease) -> None:
        """The supervisor sees its deadline on the board, and ends this process if it must."""

    def drop(self, lease: Lease) -> bool:
        if not self.has(lease):
            return False
        _, index = self._held.pop(lease.job_id)
        self._write(_at(index) + AT_TOKEN, 0)
        self._free.append(index)
        self._ended += 1
        return True

    def has(self, lease: Lease) -> bool:
        held = self._held.get(lease.job_id)
        return held is not None and held[0] == lease

    def stepping(self, job_id: JobId | None) -> None:
        """Whose code the event loop runs from here on; None for nobody's."""
        held = self._held.get(job_id) if job_id is not None else None
        self._write(AT_STEP, held[1] + 1 if held else 0)

    def beat(self, memory_in_use: int) -> None:
        """Show that the event loop turns, and what it has done so far."""
        self._write(AT_MEMORY, memory_in_use)
        self._write(AT_ENDED, self._ended)
        self._write(AT_BEAT, self._monotonic())

    def __len__(self) -> int:
        return len(self._held)

    def _write(self, at: int, number: int) -> None:
        WHOLE.pack_into(self._memory, at, number)


def _at(index: int) -> int:
    return HEAD.size + index * ENTRY.size


def _raw(job_id: JobId) -> bytes:
    return bytes.fromhex(job_id.replace("-", ""))


def _job_id(raw: bytes) -> JobId:
    text = raw.hex()
    return JobId("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))


def anonymous_file(name: str) -> int:
    """A file in memory where the system has such: no folder needs to be writable."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
