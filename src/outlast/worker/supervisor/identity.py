"""The identity of a worker: a stable name, protected by a lock that dies with its process."""

import asyncio
import logging
import os
import re
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Protocol

from outlast.config import Settings, check_lock_name
from outlast.core.run import LeaseHolder
from outlast.core.worker import SUPERVISED_BOOT_PREFIX, Topology, WorkerInfo
from outlast.errors import IdentityInUse, OperatorError
from outlast.process_identity import ProcessMark, proved_dead, proved_running
from outlast.store.contract import Capability, HasCapabilities
from outlast.store.contract.locks import HeldLock, Locks, WatchedLocks
from outlast.store.contract.workers import Workers
from outlast.worker.supervisor.options import WorkerOptions

log = logging.getLogger("outlast.worker")

LOCK_REMOVAL_TIMEOUT_S: Final = 0.25
"""Seconds that a stopping worker waits for its boot's lock."""

SILENT_WAIT_S: Final = 1.0
"""Seconds of a wait for a name after which a line says what it waits for."""

NAMES_SHOWN: Final = 10
"""How many queues, types and schedules the first log line lists."""


class IdentityStore(Locks, Workers, HasCapabilities, Protocol):
    """The pages of the store contract that an identity needs."""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The lease holder of this boot and its locks."""

    holder: LeaseHolder
    locks: tuple[HeldLock, ...]

    @property
    def is_lost(self) -> bool:
        """Whether a lock was lost, so that another worker may have the identity."""
        return any(lock.is_lost for lock in self.locks)

    async def release(self) -> None:
        """Release all locks."""
        for lock in self.locks:
            await lock.release()


def new_boot() -> ProcessMark:
    """Return a new boot: its name is the boot id, and its child processes keep the mark."""
    return ProcessMark(SUPERVISED_BOOT_PREFIX, str(uuid.uuid4()))


async def identify(store: IdentityStore, options: WorkerOptions, boot_id: str) -> WorkerIdentity:
    """Acquire the locks of the scope (topology `single`), the name and the boot.

    Raises IdentityInUse if a living worker has the scope or the name.
    """
    locks = []
    if options.topology == "single":
        locks.append(await lock_scope(store, options.scope or Settings().scope))
    try:
        name, lock = await _name_lock(store, options.instance_id)
        locks.append(lock)
        holder = LeaseHolder(instance_id=name, boot_id=boot_id)
        boot_lock = await join_identity(store, holder)
    except OperatorError:  # another attempt must not find its own locks held
        for each in locks:
            await each.release()
        raise
    held = (each for each in (*locks, boot_lock) if each is not None)
    return WorkerIdentity(holder, tuple(held))


async def remove_boot_lock(store: Locks, holder: LeaseHolder) -> None:
    """Acquire and release the boot's lock exclusively, which removes it from the store.

    Called after the last process of the boot has ended. Gives up soon: if a child had to be killed,
    etcd and DynamoDB learn of its death only by its silence, and the worker must exit before.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(LOCK_REMOVAL_TIMEOUT_S):
            lock = await store.acquire_lock(holder.boot_id)
            if lock is not None:
                await lock.release()


async def join_identity(store: Locks, holder: LeaseHolder) -> HeldLock | None:
    """Share the boot's lock, which marks this process as alive; None if it cannot be shared."""
    return await store.acquire_lock(holder.boot_id, shared=True, lasting=True)


async def lock_scope(store: Locks, scope: str) -> HeldLock:
    """Acquire the lock of a `single` worker; IdentityInUse if a living worker has it."""
    lock_name = f"scope.{check_lock_name(scope, what='scope')}"
    with _announced_wait(store, f"the scope {scope!r}"):
        lock = await store.acquire_lock(lock_name, lasting=True)
    if lock is None:
        raise IdentityInUse(
            f"a worker of topology single serves the scope {scope!r} already; stop that one, or "
            "give this one a --scope of its own"
        )
    return lock


async def _name_lock(store: IdentityStore, given: str | None) -> tuple[str, HeldLock]:
    if given is not None:
        check_lock_name(given, what="instance id")
        with _announced_wait(store, f"the name {given!r}"):
            lock = await store.acquire_lock(f"worker.{given}", lasting=True)
        if lock is None:
            raise IdentityInUse(
                f"a worker named {given!r} is running already; stop that one, or give this one "
                "another --instance-id"
            )
        return given, lock
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:100] or "host"
    in_use = await _names_in_use(store)
    for number in count(1):
        name = f"{host}-{number}"
        if name not in in_use and (lock := await _lock_at_once(store, f"worker.{name}")):
            return name, lock
    raise AssertionError("count() never ends")


async def _lock_at_once(store: Locks, name: str) -> HeldLock | None:
    """Acquire the lock of a generated name; there are others, so no holder is watched for it."""
    if isinstance(store, WatchedLocks):
        return await store.acquire_lock_at_once(name)
    return await store.acquire_lock(name, lasting=True)


@contextmanager
def _announced_wait(store: Locks, what: str) -> Iterator[None]:
    """Log one line if it takes more than an instant to know whether a holder is alive."""
    if not isinstance(store, WatchedLocks):
        yield
        return
    notice = asyncio.get_running_loop().call_later(
        SILENT_WAIT_S,
        log.warning,
        "waiting for %s: its last worker ran on another machine or in another container and has "
        "not stopped in order; it counts as dead once it has sent no heartbeat for %g s",
        what,
        store.watch_time.total_seconds(),
    )
    try:
        yield
    finally:
        notice.cancel()


async def _names_in_use(store: IdentityStore) -> set[str]:
    """Return the names of workers that may be alive though their lock is free.

    The connection of the lock broke, or the processes are frozen and will go on.
    """
    if Capability.KERNEL_LOCKS in store.capabilities:
        return set()
    left = [worker for worker in await store.workers() if worker.stopped_at is None]
    dead = proved_dead(worker.boot_id for worker in left)
    running = proved_running(worker.boot_id for worker in left)
    return {
        worker.instance_id
        for worker in left
        if (worker.is_alive or worker.boot_id in running) and worker.boot_id not in dead
    }


def start_banner(options: WorkerOptions, holder: LeaseHolder, hello: dict[str, Any]) -> str:
    """Return what a worker serves, as fields of its first log line."""
    fields = {
        "instance": holder.instance_id,
        "boot": holder.boot_id,
        "app": options.app,
        "store": hello["store"],
        "queues": _names(hello["queues"]),
        "types": _names(hello["types"]),
        "concurrency": f"{options.processes}x{hello['concurrency']}",
        "schedules": _names(hello["schedules"]),
    }
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return (",".join(names[:NAMES_SHOWN]) or "none") + (f",…({more} more)" if more > 0 else "")


def worker_info(options: WorkerOptions, holder: LeaseHolder, hello: dict[str, Any]) -> WorkerInfo:
    """Return the registry entry of this worker."""
    return WorkerInfo(
        instance_id=holder.instance_id,
        boot_id=holder.boot_id,
        host=socket.gethostname(),
        pid=os.getpid(),
        queues=tuple(hello["queues"]),
        types=tuple(hello["types"]),
        concurrency=hello["concurrency"],
        processes=options.processes,
        topology=Topology(options.topology or "pool"),
        version=hello["version"],
        app=hello["app"],
        schedules=tuple(hello["schedules"]),
    )
