"""The store: the contract's verbs, handed to the one writer or to the readers."""

import asyncio
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakSet

from holdfast.clock import Clock, SystemClock, micros
from holdfast.core.decide import Change
from holdfast.core.dossier import Dossier, Stray
from holdfast.core.event import EventRecord
from holdfast.core.group import Closing, ClosingGroup, Group, NewGroup, check_group
from holdfast.core.ids import Ids, JobId
from holdfast.core.job import Job, NewJob
from holdfast.core.limits import MAX_REASON, cut
from holdfast.core.record import Record, Swap, check_swap
from holdfast.core.reservation import NewReservation, Reservation, ReservationId
from holdfast.core.run import Claim, Holder, Lease, RunRecord
from holdfast.core.span import MICROSECOND
from holdfast.core.state import State
from holdfast.core.worker import WorkerInfo, WorkerRecord
from holdfast.errors import StoreClosed
from holdfast.store.around import Hint, Topic
from holdfast.store.base import PROMOTED_AT_ONCE, Added, Capability, Filter, Queue, Renewal
from holdfast.store.reservations import Reserved
from holdfast.store.sqlite import audit, queue_rows, reservation_rows, rows, verbs
from holdfast.store.sqlite.borrow import borrowed
from holdfast.store.sqlite.database import connect, require_version, require_writable, translated
from holdfast.store.sqlite.hints.listeners import Listeners
from holdfast.store.sqlite.locks import FileHold, FileLocks
from holdfast.store.sqlite.migrate import migrate, require_ours, write_ahead
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.statements import Probe
from holdfast.store.sqlite.transaction import SqliteTransaction
from holdfast.store.sqlite.writer import Work, Writer

BUSY = 30.0
"""Seconds to wait for a lock that somebody else holds."""

OPEN: "WeakSet[SqliteStore]" = WeakSet()
"""What this process, or the one it was forked from, has open."""


class SqliteStore:
    """One file, several processes. Reads and writes never wait for each other."""

    capabilities = frozenset({Capability.DURABLE, Capability.SHARED, Capability.TRANSACTIONS})

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        busy: float = BUSY,
        adopt: bool = False,
        probe: Probe | None = None,
    ) -> None:
        self.path = path.absolute()
        self._clock = clock or SystemClock()
        self._ids = ids or Ids(self._clock.now, secrets.randbits)
        self._busy = busy
        self._adopt = adopt
        self._probe = probe
        self._gate = threading.Lock()
        self._opening = threading.Lock()
        self._listeners = Listeners()
        self._locks = FileLocks(self.path)
        self._open: tuple[Writer, Reader, int] | None = None

    async def open(self) -> None:
        await asyncio.to_thread(self._start_once)

    async def close(self) -> None:
        if self._open is not None:
            writer, reader, _ = self._open
            self._open = None
            self._locks.drop()
            for close in (
                writer.close,
                reader.close,
                self._listeners.disconnect,
                self._beginning.shutdown,
                self._closing.shutdown,
            ):
                await asyncio.to_thread(close)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        return await self._writer.ask(verbs.add, jobs) if jobs else []

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
        found = await self._jobs("read.get", ids=list(job_ids))
        by_id = {job.id: job for job in found}
        return [by_id.get(job_id) for job_id in job_ids]

    async def claim(
        self,
        holder: Holder,
        *,
        queue: str,
        types: Collection[str],
        limit: int,
        prefetch: int = 0,
        lease: timedelta,
    ) -> list[Claim]:
        if limit + prefetch < 1 or not types:
            return []
        wanted = verbs.Wanted(
            holder=holder,
            queue=queue,
            types=sorted(types),
            limit=limit,
            prefetch=prefetch,
            lease=lease,
            prefix=self._ids.prefix(),
        )
        claims: list[Claim] = (await self._writer.ask(verbs.claim, [wanted]))[0]
        return claims

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        return await self._writer.ask(verbs.apply, changes) if changes else []

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        asked = [(lease, span) for lease in leases]
        return await self._writer.ask(verbs.renew, asked) if asked else []

    async def lapsed(self, *, limit: int) -> list[Job]:
        return await self._jobs("read.lapsed", mono=self._clock.monotonic(), limit=limit)

    async def overdue(self, *, limit: int) -> list[Job]:
        return await self._jobs("read.overdue", now=micros(self._clock.now()), limit=limit)

    async def promote_due(self, *, limit: int) -> int:
        moved: int = (await self._writer.ask(verbs.promote, [limit]))[0]
        return moved

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        asked = {"now": micros(self._clock.now()), "promoted": PROMOTED_AT_ONCE}
        return await self._jobs("read.peek", queue=queue, limit=limit, **asked)

    async def find(self, what: Filter, *, limit: int, before: int | None = None) -> list[Job]:
        states = None if what.states is None else sorted(what.states)
        asked = {"queue": what.queue, "type": what.type, "states": states}
        if what.group is not None:
            asked["group"] = what.group
        name = "read.find" if what.group is None else "group.members"
        return await self._jobs(name, limit=limit, before=before, **asked)

    async def counts(self) -> Mapping[tuple[str, State], int]:
        found = await self._reader.snapshot("read.counts")
        return {(queue, State(state)): count for queue, state, count in found}

    async def chain(self, job_id: JobId) -> list[Job]:
        return await self._jobs("read.chain", id=job_id)

    async def prune(self, *, older_than: timedelta, limit: int) -> int:
        gone: int = (await self._writer.ask(verbs.prune, [(older_than, limit)]))[0]
        return gone

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        return [rows.run_record(row) for row in await self._reader.rows("read.runs", id=job_id)]

    async def report(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        return await self._writer.ask(verbs.report, reports) if reports else []

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        attached: bool = (await self._writer.ask(verbs.attach, [(lease, artifacts)]))[0]
        return attached

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        if job_id is None:
            found = await self._reader.rows("read.events_of_no_job")
        else:
            found = await self._reader.rows("read.events", id=job_id)
        return [rows.event(row) for row in found]

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        found = await self._reader.rows("read.stream", after=after, limit=limit)
        return [rows.event(row) for row in found]

    async def held(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        asked = {"besides": besides, "instance": instance_id, "after": after}
        return await self._jobs("read.held", limit=limit, **asked)

    async def adrift(self, *, after: int = 0, limit: int) -> list[Job]:
        return await self._jobs("read.adrift", after=after, limit=limit)

    async def unfollowed(self, *, after: int = 0, limit: int) -> list[Job]:
        return await self._jobs("read.unfollowed", after=after, limit=limit)

    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        # Looked for by a reader: going through all runs must not keep anybody from writing.
        found = [rows.orphan(row) for row in await self._reader.rows("read.orphans", limit=limit)]
        removed = await self._writer.ask(verbs.remove_orphans, found) if found else []
        return [event for event in removed if event is not None]

    async def set_queue(self, queue: Queue) -> None:
        await self._writer.ask(verbs.set_queue, [queue])

    async def queue(self, name: str) -> Queue:
        found = await self._reader.rows("queue.get", name=name)
        return queue_rows.queue(found[0], self._clock.now()) if found else Queue(name=name)

    async def queues(self) -> list[Queue]:
        found = await self._reader.rows("queue.all")
        return [queue_rows.queue(row, self._clock.now()) for row in found]

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        await self._writer.ask(verbs.pause, [(name, reason, span)])

    async def resume(self, name: str) -> bool:
        resumed: bool = (await self._writer.ask(verbs.resume, [name]))[0]
        return resumed

    async def record(self, kind: str, key: str) -> Record | None:
        found = await self._reader.rows("record.get", kind=kind, key=key)
        return rows.record(found[0]) if found else None

    async def records(self, kind: str) -> list[Record]:
        return [rows.record(row) for row in await self._reader.rows("record.all", kind=kind)]

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Record | None:
        wish = check_swap(Swap(kind=kind, key=key, expected=expected, value=value))
        swapped: Record | None = (await self._writer.ask(verbs.swap, [wish]))[0]
        return swapped

    async def normalise(self, queue: str) -> int:
        changed: int = (await self._writer.ask(verbs.normalise, [queue]))[0]
        return changed

    async def add_group(self, group: NewGroup) -> bool:
        added: bool = (await self._writer.ask(verbs.add_group, [check_group(group)]))[0]
        return added

    async def seal_group(self, group_id: str) -> bool:
        sealed: bool = (await self._writer.ask(verbs.seal_group, [group_id]))[0]
        return sealed

    async def stop_group(self, group_id: str, *, reason: str | None, skip: bool = False) -> bool:
        closing = Closing.SKIP if skip else Closing.STOP
        why = None if reason is None else cut(reason, MAX_REASON)
        stopped: bool = (await self._writer.ask(verbs.stop_group, [(group_id, closing, why)]))[0]
        return stopped

    async def group(self, group_id: str) -> Group | None:
        found = await self._reader.rows("group.get", id=group_id)
        return rows.group(found[0]) if found else None

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        found = await self._reader.rows("group.find", limit=limit, before=before)
        return [rows.group(row) for row in found]

    async def groups_over(self, group_ids: Sequence[str]) -> list[bool | None]:
        found = await self._reader.rows("group.over", ids=list(group_ids))
        over = {group_id: bool(is_over) for group_id, is_over in found}
        return [over.get(group_id) for group_id in group_ids]

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        found = await self._reader.rows("group.closing", limit=limit)
        return [ClosingGroup(group_id, Closing(closing)) for group_id, closing in found]

    async def left_over(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        return await self._jobs("group.left_over", id=group_id, after=after, limit=limit)

    async def sweep_groups(self, *, limit: int) -> int:
        # Looked for by a reader first: most of the time there is nothing to write.
        if not await self._reader.rows("group.sweepable"):
            return 0
        swept: int = (await self._writer.ask(verbs.sweep_groups, [limit]))[0]
        return swept

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        before = micros(self._clock.now()) - older_than // MICROSECOND
        if not await self._reader.rows("group.expired", before=before):
            return 0
        expired: int = (await self._writer.ask(verbs.expire_groups, [(older_than, limit)]))[0]
        return expired

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        reserved: Reserved = (await self._writer.ask(verbs.reserve, [(new, job)]))[0]
        return reserved

    async def keep(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        kept: bool = (await self._writer.ask(verbs.keep, [(reservation_id, span)]))[0]
        return kept

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        found = await self._reservations("reservation.get", id=reservation_id)
        return found[0] if found else None

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        if active_only:
            return await self._reservations("reservation.held", limit=limit)
        return await self._reservations("reservation.latest", limit=limit)

    async def lapsed_reservations(self, *, limit: int) -> list[Reservation]:
        mono = self._clock.monotonic()
        return await self._reservations("reservation.lapsed", mono=mono, limit=limit)

    async def free_reservations(self, *, limit: int) -> list[Reservation]:
        freed: list[Reservation] = (await self._writer.ask(verbs.free_reservations, [limit]))[0]
        return freed

    async def enlist(self, worker: WorkerInfo) -> None:
        await self._writer.ask(verbs.enlist, [worker])

    async def beat(self, holder: Holder, *, span: timedelta) -> bool:
        alive: bool = (await self._writer.ask(verbs.beat, [(holder, span)]))[0]
        return alive

    async def retire(self, holder: Holder) -> None:
        await self._writer.ask(verbs.retire, [holder])

    async def workers(self) -> list[WorkerRecord]:
        found = await self._reader.rows("read.workers", mono=self._clock.monotonic())
        return [rows.worker(row) for row in found]

    async def size(self) -> int:
        [(number,)] = await self._reader.rows("audit.size")
        return int(number)

    async def dossiers(self, *, after: int, limit: int) -> list[Dossier]:
        found = await self._reader.rows("audit.dossiers", after=after, limit=limit)
        return [audit.dossier(row) for row in found]

    async def strays(self, *, limit: int) -> list[Stray]:
        pages = [await self._reader.rows(name, limit=limit) for name in audit.STRAYS]
        return [audit.stray(row) for page in pages for row in page]

    async def hold(self, name: str) -> FileHold | None:
        self._require_open()
        taking = asyncio.ensure_future(asyncio.to_thread(self._locks.take, name))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(_drop)  # nobody will know that it was taken
            raise

    def listen(
        self, wake: Callable[[Hint], None], *, topics: Collection[Topic] = frozenset(Topic)
    ) -> Callable[[], None]:
        return self._listeners.add(wake, topics)

    def add_within(self, connection: Any, jobs: Sequence[NewJob]) -> list[Added]:
        self._require_open()
        with translated(self.path), borrowed(connection, self.path) as cursor:
            work = Work(cursor, self._clock, self._probe, careful=True)
            return verbs.add(work, jobs)

    async def begin(self, *, within: timedelta) -> SqliteTransaction:
        self._require_open()
        transaction = SqliteTransaction(
            self.path,
            self._clock,
            gate=self._gate,
            busy=self._busy,
            probe=self._probe,
            tell=self._listeners.tell,
            within=within,
            closing=self._closing,
        )
        starting = asyncio.get_running_loop().run_in_executor(self._beginning, transaction.start)
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._closing.submit(transaction.abandon)
            raise
        return transaction

    def _start_once(self) -> None:
        with self._opening:
            if self._open is None:
                self._start()

    def _start(self) -> None:
        require_version()
        _refuse_after_fork(self.path)
        self._migrate()
        writer = Writer(
            connect(self.path, busy=self._busy),
            self.path,
            self._clock,
            gate=self._gate,
            probe=self._probe,
            tell=self._listeners.tell,
        )
        writer.start()
        reader = Reader(self.path, busy=self._busy, probe=self._probe)
        # Whoever waits for the write lock waits on a thread that whoever holds it does not need.
        self._beginning = ThreadPoolExecutor(1, thread_name_prefix="holdfast-begin")
        self._closing = ThreadPoolExecutor(1, thread_name_prefix="holdfast-commit")
        self._listeners.connect(self.path, self._clock.monotonic)
        self._open = writer, reader, os.getpid()
        OPEN.add(self)

    def _migrate(self) -> None:
        require_writable(self.path)
        connection: sqlite3.Connection = connect(self.path, busy=self._busy)
        boot = self._clock.boot_id()
        try:
            with translated(self.path):
                require_ours(connection, self.path, adopt=self._adopt)
                write_ahead(connection, self.path, busy=self._busy)
                migrate(connection, self.path, boot=boot, probe=self._probe)
        finally:
            connection.close()

    def is_inherited(self, path: Path) -> bool:
        """Whether this is a store on that file which the parent process opened."""
        return self._open is not None and self._open[2] != os.getpid() and self.path == path

    def _require_open(self) -> tuple[Writer, Reader]:
        if self._open is None:
            raise StoreClosed(f"{self.path} is not open; call open() first")
        writer, reader, pid = self._open
        if pid != os.getpid():
            raise StoreClosed(f"{self.path} was opened before a fork; open a store of your own")
        return writer, reader

    @property
    def _writer(self) -> Writer:
        return self._require_open()[0]

    @property
    def _reader(self) -> Reader:
        return self._require_open()[1]

    async def _jobs(self, name: str, **values: Any) -> list[Job]:
        return [rows.job(row) for row in await self._reader.rows(name, **values)]

    async def _reservations(self, name: str, **values: Any) -> list[Reservation]:
        found = await self._reader.rows(name, **values)
        return [reservation_rows.reservation(row) for row in found]


def _drop(taking: "asyncio.Future[FileHold | None]") -> None:
    if not taking.cancelled() and taking.exception() is None:
        held = taking.result()
        if held is not None:
            held.drop()


def _refuse_after_fork(path: Path) -> None:
    """SQLite's locks do not survive a fork, and it does not know: two would think they had them."""
    if any(store.is_inherited(path) for store in OPEN):
        raise StoreClosed(
            f"this process was forked while {path} was open, which SQLite cannot survive; open "
            "the store after the fork, or start the process afresh (multiprocessing: spawn)"
        )
