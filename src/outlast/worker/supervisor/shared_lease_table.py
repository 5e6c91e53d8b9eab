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

from outlast.core.decide import Change
from outlast.core.duration import MICROSECOND
from outlast.core.ids import JobId
from outlast.core.run import Claim, Lease

HEAD: Final = struct.Struct("=qqqqq")  # last beat, entries, place being stepped, memory, ended
ENTRY: Final = struct.Struct("=40sqqqq")  # job id, started, deadline, executor, token
WORD: Final = 8
AT_BEAT, AT_ENTRIES, AT_STEP, AT_MEMORY, AT_ENDED = range(HEAD.size // WORD)
FIRST, WORDS = HEAD.size // WORD, ENTRY.size // WORD
AT_STARTED, AT_DEADLINE, AT_EXECUTOR, AT_TOKEN = range(5, ENTRY.size // WORD)

ENTRIES: Final = 16_384
"""How many runs one child can hold; memory that nobody writes costs nothing."""

EXECUTORS: Final = ("none", "async", "thread", "process", "command")
NUMBERS: Final = {name: number for number, name in enumerate(EXECUTORS)}


@dataclass(frozen=True, slots=True)
class LeaseEntry:
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


class SharedLeaseTable:
    """The shared memory, and how to read it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.memory = mmap.mmap(fd, HEAD.size + ENTRIES * ENTRY.size)
        self.words = memoryview(self.memory).cast("q")

    @classmethod
    def new(cls) -> "SharedLeaseTable":
        fd = anonymous_file("outlast-board")
        os.ftruncate(fd, HEAD.size + ENTRIES * ENTRY.size)
        return cls(fd)

    @property
    def heartbeat(self) -> int:
        """When its writer last showed life; 0 before the first time."""
        return self.words[AT_BEAT]

    @property
    def memory_in_use(self) -> int:
        """In bytes, as its writer last said."""
        return self.words[AT_MEMORY]

    @property
    def ended(self) -> int:
        """How many runs its writer has ended."""
        return self.words[AT_ENDED]

    def entries(self) -> Iterator[LeaseEntry]:
        stepping = self.words[AT_STEP]
        for at in range(FIRST, FIRST + self.words[AT_ENTRIES] * WORDS, WORDS):
            raw, started, deadline, executor, token = ENTRY.unpack_from(self.memory, at * WORD)
            if token:
                lease = Lease(JobId(raw.rstrip(b"\0").decode("ascii", "replace")), token)
                kind = EXECUTORS[executor]
                yield LeaseEntry(lease, started or None, deadline or None, kind, at == stepping)

    def close(self) -> None:
        self.words.release()
        self.memory.close()
        os.close(self.fd)


class SharedLeaseWriter:
    """The child's own side: what it holds, and the signs of life it gives."""

    def __init__(self, board: SharedLeaseTable, monotonic: Callable[[], int]) -> None:
        self._memory = board.memory
        self._words = board.words
        self._monotonic = monotonic
        self._free = list(reversed(range(FIRST, FIRST + ENTRIES * WORDS, WORDS)))
        self._held: dict[JobId, tuple[int, int]] = {}  # token, and the first word of its entry
        self._end = FIRST
        self._ended = 0

    @property
    def room(self) -> int:
        return len(self._free)

    def add(self, claims: Sequence[Claim]) -> list[Lease]:
        memory, words, lost = self._memory, self._words, []
        for claim in claims:
            if claim.job_id in self._held:
                token, at = self._held[claim.job_id]
                lost.append(Lease(claim.job_id, token))
                self._clear(claim.job_id, at)
            at = self._free.pop()
            self._held[claim.job_id] = claim.token, at
            # The token last: without it the entry is not there.
            ENTRY.pack_into(memory, at * WORD, claim.job_id.encode(), 0, 0, 0, 0)
            words[at + AT_TOKEN] = claim.token
            if at >= self._end:
                self._end = at + WORDS
                words[AT_ENTRIES] = (self._end - FIRST) // WORDS
        return lost

    def start(self, claim: Claim, *, executor: str, limit: timedelta | None) -> int:
        held = self._held.get(claim.job_id)
        if held is None:
            return 0
        at, now, words = held[1], self._monotonic(), self._words
        words[at + AT_DEADLINE] = now + limit // MICROSECOND if limit else 0
        # When it started last: started and in no executor, it would have returned already.
        words[at + AT_EXECUTOR] = NUMBERS[executor]
        words[at + AT_STARTED] = now
        return at

    def start_async(self, claim: Claim, *, limit: timedelta | None) -> None:
        self._words[AT_STEP] = self.start(claim, executor="async", limit=limit)

    def change_executor(self, lease: Lease, executor: str) -> None:
        if self.has(lease):
            self._words[self._held[lease.job_id][1] + AT_EXECUTOR] = NUMBERS[executor]

    def returned(self, claim: Claim) -> None:
        held = self._held.get(claim.job_id)
        if held is not None and held[0] == claim.token:
            self._words[held[1] + AT_EXECUTOR] = 0
        self._words[AT_STEP] = 0

    def expire(self, lease: Lease) -> None:
        """The supervisor sees its deadline on the board, and ends this process if it must."""

    def remove(self, lease: Lease) -> bool:
        if not self.has(lease):
            return False
        self._clear(lease.job_id, self._held[lease.job_id][1])
        return True

    def remove_ended(self, ended: Sequence[Change]) -> None:
        held = self._held
        for change in ended:
            found = held.get(change.job_id)
            if found is not None and found[0] == change.token:
                self._clear(change.job_id, found[1])

    def has(self, lease: Lease) -> bool:
        held = self._held.get(lease.job_id)
        return held is not None and held[0] == lease.token

    def on_step(self, job_id: JobId | None) -> None:
        """Whose code the event loop runs from here on; None for nobody's."""
        held = None if job_id is None else self._held.get(job_id)
        self._words[AT_STEP] = held[1] if held else 0

    def heartbeat(self, memory_in_use: int) -> None:
        """Show that the event loop turns, and what it has done so far."""
        self._words[AT_MEMORY] = memory_in_use
        self._words[AT_ENDED] = self._ended
        self._words[AT_BEAT] = self._monotonic()

    def __len__(self) -> int:
        return len(self._held)

    def _clear(self, job_id: JobId, at: int) -> None:
        del self._held[job_id]
        self._words[at + AT_TOKEN] = 0
        self._free.append(at)
        self._ended += 1


def anonymous_file(name: str) -> int:
    """A file in memory where the system has such: no folder needs to be writable."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
