"""Who a worker is: a stable name, held by a lock that dies with its holder."""

import os
import re
import socket
import uuid
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from outlast.core.limits import check_name
from outlast.core.run import LeaseHolder
from outlast.core.worker import SUPERVISED_BOOT_PREFIX, Topology, WorkerInfo
from outlast.errors import ConfigurationError, OperatorError
from outlast.store.contract.locks import HeldLock, Locks
from outlast.worker.supervisor.options import WorkerOptions

LONGEST_NAME: Final = 100


class IdentityInUse(OperatorError):
    """A living worker has that identity, or that scope."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A name nobody else bears now: whatever an earlier boot of it left belongs to the dead."""

    holder: LeaseHolder
    holds: tuple[HeldLock, ...]

    @property
    def is_lost(self) -> bool:
        """Whether another worker may have that name by now."""
        return any(hold.is_lost for hold in self.holds)

    async def release(self) -> None:
        for hold in self.holds:
            await hold.release()


async def identify(store: Locks, plan: WorkerOptions) -> Identity:
    """Take the scope (topology `single`) and the name. Taken if a living worker has either."""
    holds = [await _scope(store, plan.scope)] if plan.topology == "single" else []
    try:
        name, hold = await _name(store, plan.instance_id)
    except IdentityInUse:
        for each in holds:
            await each.release()
        raise
    holder = LeaseHolder(instance_id=name, boot_id=f"{SUPERVISED_BOOT_PREFIX}{uuid.uuid4()}")
    holds = [
        each for each in (*holds, hold, await join_identity(store, holder)) if each is not None
    ]
    return Identity(holder, tuple(holds))


async def forget(store: Locks, holder: LeaseHolder) -> None:
    """After the last of its processes: its lock is not wanted again, and leaves no trace."""
    alone = await store.acquire_lock(holder.boot_id)
    if alone is not None:
        await alone.release()


async def join_identity(store: Locks, holder: LeaseHolder) -> HeldLock | None:
    """Be seen alive as a process of that worker; every one of them shares this lock."""
    return await store.acquire_lock(holder.boot_id, shared=True)


async def _scope(store: Locks, scope: str) -> HeldLock:
    hold = await store.acquire_lock(f"scope.{_checked(scope, what='scope')}")
    if hold is None:
        raise IdentityInUse(
            f"a worker of topology single serves the scope {scope!r} already; stop that one, or "
            "give this one a --scope of its own"
        )
    return hold


async def _name(store: Locks, given: str | None) -> tuple[str, HeldLock]:
    if given is not None:
        hold = await store.acquire_lock(f"worker.{_checked(given, what='instance id')}")
        if hold is None:
            raise IdentityInUse(
                f"a worker named {given!r} is running already; stop that one, or give this one "
                "another --instance-id"
            )
        return given, hold
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:100] or "host"
    for number in count(1):
        name = f"{host}-{number}"
        if hold := await store.acquire_lock(f"worker.{name}"):
            return name, hold
    raise AssertionError("there is always another number")


def _checked(name: str, *, what: str) -> str:
    if len(name) > LONGEST_NAME:
        raise ConfigurationError(f"{what} has {len(name)} characters; use at most {LONGEST_NAME}")
    return check_name(name, what=what)


def worker_info(plan: WorkerOptions, holder: LeaseHolder, hello: dict[str, Any]) -> WorkerInfo:
    """What the registry is told of this worker."""
    return WorkerInfo(
        instance_id=holder.instance_id,
        boot_id=holder.boot_id,
        host=socket.gethostname(),
        pid=os.getpid(),
        queues=tuple(hello["queues"]),
        types=tuple(hello["types"]),
        concurrency=hello["concurrency"],
        processes=plan.processes,
        topology=Topology(plan.topology),
        version=hello["version"],
    )
