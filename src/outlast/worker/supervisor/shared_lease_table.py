"""The shared lease table: written by a child, read by its supervisor, in shared memory.

A write is no system call, and it survives the death of its writer. Reads need no lock: a
half-written entry names a lease that does not exist, and the store's fence refuses any change of
it.
"""

import mmap
import os
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from outlast.core.decide import Change
from outlast.core.delivery import Delivery
from outlast.core.duration import MICROSECOND
from outlast.core.ids import JobId
from outlast.core.run import Claim, Lease

HEAD: Final = struct.Struct("=qqqqqq")  # heartbeat, entries, stepping entry, memory, ended, renewed
ENTRY: Final = struct.Struct("=40sqqqqq")  # job id, started, deadline, executor, once since, token
WORD: Final = 8
"""Bytes of one word."""

AT_HEARTBEAT, AT_ENTRIES, AT_STEP, AT_MEMORY, AT_ENDED, AT_RENEWED = range(HEAD.size // WORD)
FIRST, WORDS = HEAD.size // WORD, ENTRY.size // WORD
AT_STARTED, AT_DEADLINE, AT_EXECUTOR, AT_ONCE, AT_TOKEN = range(5, ENTRY.size // WORD)

MAX_ENTRIES: Final = 16_384
"""Leases one child can hold; untouched shared memory takes no space."""

EXECUTORS: Final = ("none", "async", "thread", "process", "command")
EXECUTOR_NUMBERS: Final = {name: number for number, name in enumerate(EXECUTORS)}


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """One lease of the table. Times are of the monotonic clock; None if not set.

    `once_since` is when a job with delivery `once` was claimed.
    """

    lease: Lease
    started: int | None
    deadline: int | None
    executor: str
    is_stepping: bool
    once_since: int | None = None

    @property
    def has_returned(self) -> bool:
        """Whether the handler has ended and only its end is not durable yet."""
        return self.started is not None and self.executor == "none"


class SharedLeaseTable:
    """The shared memory and its reader."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.memory = mmap.mmap(fd, HEAD.size + MAX_ENTRIES * ENTRY.size)
        self.words = memoryview(self.memory).cast("q")

    @classmethod
    def new(cls) -> "SharedLeaseTable":
        """Return a table in new shared memory."""
        fd = anonymous_file("outlast-leases")
        os.ftruncate(fd, HEAD.size + MAX_ENTRIES * ENTRY.size)
        return cls(fd)

    @property
    def heartbeat(self) -> int:
        """Time of the last heartbeat; 0 before the first."""
        return self.words[AT_HEARTBEAT]

    @property
    def memory_in_use(self) -> int:
        """Bytes of memory the child used at its last heartbeat."""
        return self.words[AT_MEMORY]

    @property
    def ended(self) -> int:
        """Number of runs the child has ended."""
        return self.words[AT_ENDED]

    @property
    def renewed(self) -> int:
        """When the last renewal of all leases began; 0 before the first."""
        return self.words[AT_RENEWED]

    def record_renewal(self, began: int) -> None:
        """Record that all leases were renewed, by a request that began then."""
        self.words[AT_RENEWED] = began

    def entries(self) -> Iterator[LeaseEntry]:
        """Yield the leases that the child holds."""
        stepping = self.words[AT_STEP]
        for at in range(FIRST, FIRST + self.words[AT_ENTRIES] * WORDS, WORDS):
            raw, started, deadline, executor, once, token = ENTRY.unpack_from(
                self.memory, at * WORD
            )
            if token:
                lease = Lease(JobId(raw.rstrip(b"\0").decode("ascii", "replace")), token)
                kind = EXECUTORS[executor]
                is_stepping = at == stepping
                yield LeaseEntry(
                    lease, started or None, deadline or None, kind, is_stepping, once or None
                )

    def close(self) -> None:
        """Unmap the memory and close its file descriptor."""
        self.words.release()
        self.memory.close()
        os.close(self.fd)


class SharedLeaseWriter:
    """The child's side of the table: a `LeaseTable` that also writes heartbeats."""

    def __init__(self, table: SharedLeaseTable, monotonic: Callable[[], int]) -> None:
        self._memory = table.memory
        self._words = table.words
        self._monotonic = monotonic
        self._free = list(reversed(range(FIRST, FIRST + MAX_ENTRIES * WORDS, WORDS)))
        self._held: dict[JobId, tuple[int, int]] = {}  # token and first word of the entry
        self._once: dict[JobId, int] = {}  # time of the claim
        self._end = FIRST
        self._ended = 0
        self.has_once = threading.Event()

    @property
    def room(self) -> int:
        """How many more leases fit."""
        return len(self._free)

    def add(self, claims: Sequence[Claim]) -> list[Lease]:
        """Add claims; return the lost leases of the same jobs that they replace."""
        memory, words, lost = self._memory, self._words, []
        for claim in claims:
            if claim.job_id in self._held:
                token, at = self._held[claim.job_id]
                lost.append(Lease(claim.job_id, token))
                self._clear(claim.job_id, at)
            at = self._free.pop()
            self._held[claim.job_id] = claim.token, at
            # The token comes last: a reader ignores an entry without one.
            since = self._claimed_once(claim) if claim.delivery is Delivery.ONCE else 0
            ENTRY.pack_into(memory, at * WORD, claim.job_id.encode(), 0, 0, 0, since, 0)
            words[at + AT_TOKEN] = claim.token
            if at >= self._end:
                self._end = at + WORDS
                words[AT_ENTRIES] = (self._end - FIRST) // WORDS
        return lost

    def start(self, claim: Claim, *, executor: str, limit: timedelta | None) -> int:
        """Record the start of a handler; return the first word of its entry, or 0."""
        held = self._held.get(claim.job_id)
        if held is None:
            return 0
        at, now, words = held[1], self._monotonic(), self._words
        words[at + AT_DEADLINE] = now + limit // MICROSECOND if limit else 0
        # The start comes last: a started entry without executor means that the handler returned.
        words[at + AT_EXECUTOR] = EXECUTOR_NUMBERS[executor]
        words[at + AT_STARTED] = now
        return at

    def start_async(self, claim: Claim, *, limit: timedelta | None) -> None:
        """Record the start of an async handler, whose code the loop runs from now on."""
        self._words[AT_STEP] = self.start(claim, executor="async", limit=limit)

    def change_executor(self, lease: Lease, executor: str) -> None:
        """Record that the code of the run continues in another executor."""
        if self.has(lease):
            self._words[self._held[lease.job_id][1] + AT_EXECUTOR] = EXECUTOR_NUMBERS[executor]

    def returned(self, claim: Claim) -> None:
        """Record that the handler has ended and its end is on the way to the store."""
        held = self._held.get(claim.job_id)
        if held is not None and held[0] == claim.token:
            self._words[held[1] + AT_EXECUTOR] = 0
            self._once.pop(claim.job_id, None)
        self._words[AT_STEP] = 0

    def expire(self, lease: Lease) -> None:
        """Do nothing: the supervisor reads the deadline and kills this process if necessary."""

    def lose(self, lease: Lease) -> None:
        """Remove a lost lease; a `once` run must end now, so its deadline is over."""
        if lease.job_id not in self._once:
            self.remove(lease)
        elif self.has(lease):
            self._words[self._held[lease.job_id][1] + AT_DEADLINE] = self._monotonic()

    def is_uncovered(self, limit: int) -> bool:
        """Whether a `once` run was neither claimed nor renewed in the last `limit` microseconds.

        Safe on another thread: `dict.copy` is atomic.
        """
        since = min(self._once.copy().values(), default=None)
        return since is not None and self._monotonic() > max(since, self._words[AT_RENEWED]) + limit

    def remove(self, lease: Lease) -> bool:
        """Remove a lease. Returns False if it is not held under that token."""
        if not self.has(lease):
            return False
        self._clear(lease.job_id, self._held[lease.job_id][1])
        return True

    def remove_ended(self, ended: Sequence[Change]) -> None:
        """Remove the leases of runs whose end is durable or was refused."""
        held = self._held
        for change in ended:
            found = held.get(change.job_id)
            if found is not None and found[0] == change.token:
                self._clear(change.job_id, found[1])

    def has(self, lease: Lease) -> bool:
        """Whether the lease is held under that token."""
        held = self._held.get(lease.job_id)
        return held is not None and held[0] == lease.token

    def on_step(self, job_id: JobId | None) -> None:
        """Record the job whose code the event loop runs from now on; None if it runs none."""
        held = None if job_id is None else self._held.get(job_id)
        self._words[AT_STEP] = held[1] if held else 0

    def heartbeat(self, memory_in_use: int) -> None:
        """Write a heartbeat, the memory in use and the number of ended runs."""
        self._words[AT_MEMORY] = memory_in_use
        self._words[AT_ENDED] = self._ended
        self._words[AT_HEARTBEAT] = self._monotonic()

    def __len__(self) -> int:
        return len(self._held)

    def _claimed_once(self, claim: Claim) -> int:
        self._once[claim.job_id] = since = self._monotonic()
        self.has_once.set()
        return since

    def _clear(self, job_id: JobId, at: int) -> None:
        del self._held[job_id]
        self._once.pop(job_id, None)
        self._words[at + AT_TOKEN] = 0
        self._free.append(at)
        self._ended += 1


def anonymous_file(name: str) -> int:
    """Return the descriptor of an in-memory file, or of a temporary file as a fallback."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
