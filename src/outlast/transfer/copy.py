"""The steps of a transfer. Killed at any step, exactly one of the two stores accepts work.

The source accepts work until one write marks it as moved; a seal that is not renewed expires. From
then on the target accepts work: the last step opens it, or the next process that uses it if the
source is a file, or the same command again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from outlast.core.address import shown_address
from outlast.core.ids import JobId
from outlast.errors import OperatorError, OutlastError, StoreBusy, StoreMoved, TransitionRefused
from outlast.store.contract import Store
from outlast.store.contract.transfer import (
    MAX_ADDRESS,
    StatusChange,
    TableKind,
    TransferStage,
    TransferStatus,
    closed_error,
)
from outlast.store.open import SQLITE
from outlast.transfer.drain import drain
from outlast.transfer.row_sync import SyncResult, TableDigest, sync_rows
from outlast.verify import verify

log = logging.getLogger("outlast.copy")

DEFAULT_GRACE: Final = timedelta(seconds=30)
"""Time for which running jobs may end after the source is sealed."""

SEAL_DURATION: Final = timedelta(seconds=30)
"""Time after which a seal expires unless renewed, so that the source accepts work again."""

MAX_SYNC_ROUNDS: Final = 5
"""Passes over the rows at most until both stores are equal; usually two suffice."""

COPY_LOCK: Final = "outlast-copy"


class CopyProgress(Protocol):
    """Called with the current step and the number of rows handled since the last call."""

    def __call__(self, step: str, more: int) -> None:
        """Report progress."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """The result of a transfer: per table the number of rows and the digest of both stores."""

    source: str
    target: str
    digests: dict[str, TableDigest]
    sealed_for: float  # seconds during which neither store accepted work
    seconds: float


def address_of(url: str) -> str:
    """Return the address under which the other store records this one.

    It has no password and does not depend on the working directory. Raises TransitionRefused if it
    is too long.
    """
    shown = shown_address(url)
    if shown.startswith(SQLITE):
        name, mark, query = shown.removeprefix(SQLITE).partition("?")
        shown = f"{SQLITE}{Path(name).resolve()}{mark}{query}"
    if len(shown) > MAX_ADDRESS:
        raise TransitionRefused(f"the URL has over {MAX_ADDRESS:,} characters; shorten it")
    return shown


class StoreCopy:
    """Moves the contents of `source` into `target`; a repeated run continues the first."""

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
        progress: CopyProgress | None = None,
    ) -> None:
        """Create a transfer between two open stores.

        `seal` is the duration of the seal, renewed three times within it.
        """
        self._source = source
        self._target = target
        self._from = address_of(from_url)
        self._to = address_of(to_url)
        self._new_id = new_id
        self._transfer_id: str = new_id()
        self._grace = grace
        self._seal = seal
        self._progress = progress or _ignore_progress
        if self._from == self._to:
            raise TransitionRefused(f"{self._from} is both --from and --to; name two stores")

    async def run(self) -> CopyResult | None:
        """Run the transfer. Returns None if it only had to open a target that was left ready.

        Raises TransitionRefused, StoreBusy, StoreMoved or OperatorError; the source then accepts
        work again.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with (
            self._exclusive(self._source, self._from),
            self._exclusive(self._target, self._to),
        ):
            if await self._is_finished():
                return None
            await self._begin()
            await self._sync_rows("history", ended_only=True)
            await self._verify(self._source, self._from)
            sealed_at = loop.time()
            last = await self._under_seal()
            await self._set_status(self._target, TransferStage.OPEN)
        ended = loop.time()
        digests = {str(kind): each for kind, each in last.digests.items()}
        return CopyResult(
            source=self._from,
            target=self._to,
            digests=digests,
            sealed_for=ended - sealed_at,
            seconds=ended - began,
        )

    @asynccontextmanager
    async def _exclusive(self, store: Store, address: str) -> AsyncIterator[None]:
        lock = await store.acquire_lock(COPY_LOCK)
        if lock is None:
            raise StoreBusy(f"another transfer from or to {address} is running; wait for its end")
        try:
            yield
        finally:
            with suppress(OperatorError):
                await lock.release()

    async def _is_finished(self) -> bool:
        """Whether an earlier transfer died after its decisive write; opens the target then."""
        source, target = await self._source.transfer_status(), await self._target.transfer_status()
        if source.stage is not TransferStage.MOVED:
            return False
        if target.stage is TransferStage.READY and target.transfer_id == source.transfer_id:
            self._transfer_id = target.transfer_id
            await self._set_status(self._target, TransferStage.OPEN)
            return True
        if target.stage is TransferStage.OPEN and source.other == self._to:
            return True
        raise StoreMoved(
            f"{self._from} was moved to {source.other} already; copy from there", to=source.other
        )

    async def _begin(self) -> None:
        """Mark the target as filling from the source.

        Raises TransitionRefused if it is not empty or belongs to another transfer.
        """
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
            await self._require_empty()  # from now on no client can add anything

    def _require_open(self, status: TransferStatus) -> None:
        if status.stage in (TransferStage.FILLING, TransferStage.READY):
            raise TransitionRefused(
                f"{self._from} is itself being filled from {status.other}; finish that first"
            )
        if status.stage is TransferStage.SEALED and status.other != self._to:
            raise TransitionRefused(
                f"{self._from} is being moved to {status.other}; wait for its end"
            )

    async def _require_empty(self) -> None:
        for kind in TableKind:
            if kind is not TableKind.COUNTERS and await self._target.dump(kind, limit=1):
                with suppress(OperatorError):
                    await self._target.change_transfer_status(
                        self._status_change(TransferStage.OPEN)
                    )
                raise TransitionRefused(
                    f"{self._to} is not empty: it has {kind}; choose a new store as the target"
                )

    async def _under_seal(self) -> SyncResult:
        """Copy the rest while neither store accepts work. Any error opens the source again."""
        if not await self._source.change_transfer_status(
            self._status_change(TransferStage.SEALED, grace=self._grace)
        ):
            raise StoreBusy(f"{self._from} is sealed by another transfer; wait for its end")
        renewing = asyncio.create_task(self._keep_sealed(), name="outlast-seal")
        try:
            last = await self._sync_until_equal()
            await self._verify(self._target, self._to)
            await self._set_status(self._target, TransferStage.READY)
            await self._commit_move()
        except BaseException:
            with suppress(OutlastError):
                await self._source.change_transfer_status(self._status_change(TransferStage.OPEN))
            raise
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
        return last

    async def _commit_move(self) -> None:
        """Write the one change that decides which of the two stores accepts work."""
        if not await self._source.change_transfer_status(self._status_change(TransferStage.MOVED)):
            raise StoreBusy(
                f"the seal of {self._from} expired before the copy was complete; it accepts work "
                "again. Run the same command again"
            )

    async def _keep_sealed(self) -> None:
        """Renew the seal. If that fails, the seal expires and the decisive write is refused."""
        while True:
            await asyncio.sleep(self._seal.total_seconds() / 3)
            try:
                await self._source.change_transfer_status(self._status_change(TransferStage.SEALED))
            except OperatorError as error:
                log.warning("cannot renew the seal of %s, will try again: %s", self._from, error)

    async def _sync_until_equal(self) -> SyncResult:
        """Copy until a pass finds no difference, and no run is open before or after it.

        A claim that a store could not refuse in time opens a run, which a pass leaves out.
        """
        await drain(self._source, new_id=self._new_id)
        for number in range(MAX_SYNC_ROUNDS):
            found = await self._sync_rows("compare" if number else "rest", ended_only=False)
            was_idle = not await drain(self._source, new_id=self._new_id)
            if was_idle and not found.differed:
                return found
        raise OperatorError(
            f"{self._to} still differs from {self._from} after {MAX_SYNC_ROUNDS} rounds; another "
            f"program writes to one of them. {self._from} accepts work again; stop that program "
            "and run the same command again"
        )

    async def _sync_rows(self, step: str, *, ended_only: bool) -> SyncResult:
        def on_rows(more: int) -> None:
            self._progress(step, more)

        return await sync_rows(self._source, self._target, ended_only=ended_only, on_rows=on_rows)

    async def _verify(self, store: Store, address: str) -> None:
        done = 0

        def on_jobs(now: int, _: int) -> None:
            nonlocal done
            self._progress("verify", now - done)
            done = now

        report = await verify(store, progress=on_jobs)
        if not report.is_sound:
            raise OperatorError(
                f"{address} breaks {report.found:,} invariants, the first: "
                f"{report.violations[0].what}; see outlast verify --url {address}, repair it, "
                "and run the same command again"
            )

    async def _set_status(self, store: Store, stage: TransferStage) -> None:
        if not await store.change_transfer_status(self._status_change(stage)):
            status = await store.transfer_status()
            raise StoreBusy(
                f"{self._to} is {status.stage} by another transfer and cannot become {stage}; "
                "run the same command again"
            )

    def _status_change(
        self, stage: TransferStage, *, grace: timedelta | None = None
    ) -> StatusChange:
        other = self._to if stage in (TransferStage.SEALED, TransferStage.MOVED) else self._from
        change = StatusChange(stage=stage, other=other, transfer_id=self._transfer_id)
        return (
            replace(change, span=self._seal, grace=grace)
            if stage is TransferStage.SEALED
            else change
        )


def _ignore_progress(step: str, more: int) -> None:
    """Do nothing: the default progress callback."""
