"""The steps of a move. Killed at any of them, exactly one of the two stores takes work.

The source does until the one write that says it has moved; a seal that nobody renews is over by
itself. The target does from then on: opened by the last step, or by whoever opens it next.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from outlast.core.ids import JobId
from outlast.errors import OperatorError, OutlastError, StoreBusy, StoreMoved, TransitionRefused
from outlast.store.contract import Capability, Store
from outlast.store.contract.transfer import (
    MAX_ADDRESS,
    StatusChange,
    TableKind,
    TransferStage,
    TransferStatus,
    closed_error,
)
from outlast.store.open import SQLITE, without_password
from outlast.transfer.drain import drain
from outlast.transfer.row_sync import SyncResult, TableDigest, sync_rows
from outlast.verify import verify

log = logging.getLogger("outlast.copy")

DEFAULT_GRACE: Final = timedelta(seconds=30)
SEAL_DURATION: Final = timedelta(seconds=30)
"""How long a seal lasts that nobody renews: so long nobody takes work when a copier dies."""

SEAL_VISIBILITY_DELAY: Final = timedelta(seconds=3)
"""Three times as long as whoever adds jobs may go without a look at such a store."""

MAX_SYNC_ROUNDS: Final = 5
"""How often the rest is copied at most until both sides are the same; mostly that is twice."""

COPY_LOCK: Final = "outlast-copy"


class CopyProgress(Protocol):
    """Told which step it is at, and how many more rows were looked at."""

    def __call__(self, step: str, more: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """What was moved: by kind how many rows, and the digest that both stores agree on."""

    source: str
    target: str
    digests: dict[str, TableDigest]
    sealed_for: float  # seconds during which neither store took work
    seconds: float


def address_of(url: str) -> str:
    """What the other store remembers of it: without the password, and from anywhere the same."""
    shown = str(without_password(url))
    if shown.startswith(SQLITE):
        name, mark, query = shown.removeprefix(SQLITE).partition("?")
        shown = f"{SQLITE}{Path(name).resolve()}{mark}{query}"
    if len(shown) > MAX_ADDRESS:
        raise TransitionRefused(f"the address has over {MAX_ADDRESS:,} characters; shorten it")
    return shown


class StoreCopy:
    """Moves what `source` holds into `target`; run again, it goes on where it was."""

    def __init__(
        self,
        source: Store,
        target: Store,
        *,
        from_url: str,
        to_url: str,
        new_id: Callable[[], JobId],
        grace: timedelta = DEFAULT_GRACE,
        seal: timedelta = SEAL_DURATION,
        seen: timedelta = SEAL_VISIBILITY_DELAY,
        progress: CopyProgress | None = None,
    ) -> None:
        """Both are open; `seal` is renewed three times in its span.

        `seen` is how long to wait for everybody to see it, where they look only now and then.
        """
        self._seen = seen
        self._source = source
        self._target = target
        self._from = address_of(from_url)
        self._to = address_of(to_url)
        self._new_id = new_id
        self._by: str = new_id()
        self._grace = grace
        self._seal = seal
        self._progress = progress or _silent
        if self._from == self._to:
            raise TransitionRefused(f"{self._from} is both --from and --to; name two stores")

    async def run(self) -> CopyResult | None:
        """None if all there was to do was to open a target that had been left ready."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with self._alone(self._source, self._from), self._alone(self._target, self._to):
            if await self._is_finished():
                return None
            await self._begin()
            await self._sync_rows("history", ended_only=True)
            await self._verify(self._source, self._from)
            sealed_at = loop.time()
            last = await self._under_seal()
            await self._set_status(self._target, TransferStage.OPEN)
        ended = loop.time()
        held = {str(kind): each for kind, each in last.digests.items()}
        return CopyResult(
            source=self._from,
            target=self._to,
            digests=held,
            sealed_for=ended - sealed_at,
            seconds=ended - began,
        )

    @asynccontextmanager
    async def _alone(self, store: Store, address: str) -> AsyncIterator[None]:
        held = await store.acquire_lock(COPY_LOCK)
        if held is None:
            raise StoreBusy(f"somebody else copies from or to {address} just now; wait for that")
        try:
            yield
        finally:
            with suppress(OperatorError):
                await held.release()

    async def _is_finished(self) -> bool:
        """Whether an earlier copier was killed after the decisive write."""
        source, target = await self._source.transfer_status(), await self._target.transfer_status()
        if source.stage is not TransferStage.MOVED:
            return False
        if target.stage is TransferStage.READY and target.by == source.by:
            self._by = target.by
            await self._set_status(self._target, TransferStage.OPEN)
            return True
        if target.stage is TransferStage.OPEN and source.other == self._to:
            return True
        raise StoreMoved(
            f"{self._from} was moved to {source.other} already; copy from there", to=source.other
        )

    async def _begin(self) -> None:
        """The target says whose it is, unless it holds anything or is somebody else's."""
        self._require_open(await self._source.transfer_status())
        there = await self._target.transfer_status()
        is_fresh = there.stage is TransferStage.OPEN
        if is_fresh:
            await self._require_empty()
        elif there.stage not in (TransferStage.FILLING, TransferStage.READY):
            raise closed_error(there)
        elif there.other != self._from:
            raise TransitionRefused(
                f"{self._to} is being filled from {there.other}; copy from there, or choose "
                "another target"
            )
        await self._set_status(self._target, TransferStage.FILLING)
        if is_fresh:
            await self._require_empty()  # nobody can have added anything since

    def _require_open(self, footing: TransferStatus) -> None:
        if footing.stage in (TransferStage.FILLING, TransferStage.READY):
            raise TransitionRefused(
                f"{self._from} is itself being filled from {footing.other}; finish that first"
            )
        if footing.stage is TransferStage.SEALED and footing.other != self._to:
            raise TransitionRefused(
                f"{self._from} is being moved to {footing.other}; wait until that is over"
            )

    async def _require_empty(self) -> None:
        for kind in TableKind:
            if kind is not TableKind.COUNTERS and await self._target.dump(kind, limit=1):
                with suppress(OperatorError):
                    await self._target.change_transfer_status(self._wish(TransferStage.OPEN))
                raise TransitionRefused(
                    f"{self._to} is not empty: it has {kind}; choose a new store as the target"
                )

    async def _under_seal(self) -> SyncResult:
        """The rest, while neither takes work; whatever fails, the source goes on at once."""
        await self._require_stopped()
        if not await self._source.change_transfer_status(
            self._wish(TransferStage.SEALED, grace=self._grace)
        ):
            raise StoreBusy(f"{self._from} is sealed by another move; wait until that is over")
        renewing = asyncio.create_task(self._keep_sealed(), name="outlast-seal")
        try:
            if Capability.SEALS not in self._source.capabilities:
                await asyncio.sleep(self._seen.total_seconds())
            await drain(self._source, new_id=self._new_id)
            last = await self._level_fully()
            await self._verify(self._target, self._to)
            await self._set_status(self._target, TransferStage.READY)
            await self._commit_move()
        except BaseException:
            with suppress(OutlastError):
                await self._source.change_transfer_status(self._wish(TransferStage.OPEN))
            raise
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
        return last

    async def _require_stopped(self) -> None:
        """Some stores cannot make everybody see a seal at one moment: nobody may work there."""
        if Capability.SEALS in self._source.capabilities:
            return
        alive = [worker for worker in await self._source.workers() if worker.is_alive]
        if alive:
            names = ", ".join(worker.instance_id for worker in alive[:5])
            raise TransitionRefused(
                f"{self._from} can be copied only when nobody works there; stop these workers, "
                f"and whoever adds jobs: {names}"
            )

    async def _commit_move(self) -> None:
        """The one write that decides which of the two takes work."""
        if not await self._source.change_transfer_status(self._wish(TransferStage.MOVED)):
            raise StoreBusy(
                f"the seal of {self._from} was over before the copy was; it works on. Run the "
                "same command again"
            )

    async def _keep_sealed(self) -> None:
        """If it cannot, the seal is over by itself, and the decisive write is refused."""
        while True:
            await asyncio.sleep(self._seal.total_seconds() / 3)
            try:
                await self._source.change_transfer_status(self._wish(TransferStage.SEALED))
            except OperatorError as error:
                log.warning("cannot renew the seal of %s yet: %s", self._from, error)

    async def _level_fully(self) -> SyncResult:
        for number in range(MAX_SYNC_ROUNDS):
            found = await self._sync_rows("compare" if number else "rest", ended_only=False)
            if not found.differed:
                return found
        raise OperatorError(
            f"{self._to} still differs from {self._from} after {MAX_SYNC_ROUNDS} rounds; somebody writes "
            f"to one of them by other means. {self._from} works on"
        )

    async def _sync_rows(self, step: str, *, ended_only: bool) -> SyncResult:
        def moved(more: int) -> None:
            self._progress(step, more)

        return await sync_rows(self._source, self._target, ended_only=ended_only, moved=moved)

    async def _verify(self, store: Store, address: str) -> None:
        done = 0

        def moved(now: int, _: int) -> None:
            nonlocal done
            self._progress("verify", now - done)
            done = now

        report = await verify(store, progress=moved)
        if not report.is_sound:
            raise OperatorError(
                f"{address} breaks {report.found:,} invariants, the first: "
                f"{report.violations[0].what}; see outlast verify --url, mend it, and run the "
                "same command again"
            )

    async def _set_status(self, store: Store, stage: TransferStage) -> None:
        if not await store.change_transfer_status(self._wish(stage)):
            footing = await store.transfer_status()
            raise StoreBusy(
                f"{self._to} is {footing.stage} by another move, which is not to be {stage} now; "
                "run the same command again"
            )

    def _wish(self, stage: TransferStage, *, grace: timedelta | None = None) -> StatusChange:
        other = self._to if stage in (TransferStage.SEALED, TransferStage.MOVED) else self._from
        wish = StatusChange(stage=stage, other=other, by=self._by)
        return (
            replace(wish, span=self._seal, grace=grace) if stage is TransferStage.SEALED else wish
        )


def _silent(step: str, more: int) -> None:  # noqa: ARG001 - nobody looks
    return
