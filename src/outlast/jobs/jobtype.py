"""Job types: a handler with its policy, and the typed ways to enqueue it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import update_wrapper
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

from outlast.core.delivery import Delivery
from outlast.core.duration import Duration
from outlast.core.ids import JobId
from outlast.core.job import NewJob, Slot
from outlast.errors import DuplicateJob, InvalidArgument, InvalidJob, InvalidParams
from outlast.jobs.client import Client
from outlast.jobs.direct_run import DirectRunOptions, OnBusy, require_direct, run_now
from outlast.jobs.executor_choice import STOPS
from outlast.jobs.handle import Handle
from outlast.jobs.handler_class import read_class
from outlast.jobs.options import JobFactory, OnConflict, check_on_conflict, new_job
from outlast.jobs.policy import Policy
from outlast.jobs.signature import Signature, read_signature
from outlast.store.contract import Capability, Store
from outlast.store.contract.jobs import Added
from outlast.store.contract.transactions import Transactions

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class JobType(Generic[P, R_co]):
    """A registered handler. Calling it calls what was decorated, as if it were not.

    `stops` says what becomes of its run when it is asked to stop: an async handler is cancelled
    at its next await, a thread only sees it at a checkpoint, a process or command is killed now.
    """

    def __init__(self, function: Callable[..., Any], policy: Policy, client: Client) -> None:
        call, signature = _read(function, policy)
        self.function: Final = call
        self.codec: Final = signature.params
        self.policy: Final = policy
        self.name: Final = policy.name
        self.delivery: Final = policy.delivery
        self.retry: Final = policy.retry
        self.classifier: Final = policy.classifier
        self.queue: Final = policy.queue
        self.priority: Final = policy.priority
        self.max_runtime: Final = policy.max_runtime
        self.executor: Final = signature.executor
        self.stops: Final = STOPS[signature.executor]
        self.takes_run: Final = signature.takes_run
        self.load: Final = signature.params.load
        self.dump_result: Final = signature.result.dump
        self.load_result: Final = signature.result.load
        self.client: Final = client
        self._dump: Final = signature.params.dump
        self._positional: Final = signature.positional
        self._plain: ConfiguredJobType[P, R_co] = ConfiguredJobType(self, new_job(policy))
        self._decorated = function
        update_wrapper(self, function, updated=())

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Store a job with these arguments; when it answers, the job survives.

        `await send_invoice.enqueue(invoice_id=3)`. The arguments are those of the handler without
        its `run`. InvalidParams or PayloadTooLarge if they cannot be stored.
        """
        return await self._plain.enqueue(*args, **kwargs)

    async def run_now(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Run it before all others of its queue; answers when a worker has taken it.

        `handle = await story.run_now(chapter=3)`, then `await handle.result()`. Meanwhile nothing
        else of that queue is started: where one job runs at a time, until this one has ended. It
        is not retried. QueueBusy if another direct run holds the queue for too long, or it is
        paused; NoWorkerAvailable if nobody takes the job in time: then, and when you are cancelled, the job
        will not run. `.options(wait="30s", on_busy="reject", request="req-7")` say how.
        """
        return await self._plain.run_now(*args, **kwargs)

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> "Bound[R_co]":
        """These arguments, checked and ready for `app.enqueue_many`."""
        return Bound(self._plain, self._plain.params(args, kwargs))

    def options(
        self,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        bucket: str | None = None,
        active_key: str | None = None,
        priority: int | None = None,
        queue: str | None = None,
        slot: datetime | Slot | None = None,
        max_attempts: int | None = None,
        start_within: Duration | None = None,
        group_id: str | None = None,
        on_conflict: OnConflict = "return",
        tx: Any = None,
        wait: Duration | None = None,
        on_busy: OnBusy | None = None,
        request: str | None = None,
    ) -> "ConfiguredJobType[P, R_co]":
        """The same type with wishes for one job: `.options(delay="5m", key="inv:3").enqueue(…)`.

        `delay` or `at`: due later. `key` (and `bucket`): one job for ever. `active_key`: one job
        that has not ended. `slot`: this occurrence, once for ever. What to do when one of these is
        taken, `on_conflict` says: return the job that holds it, skip (`enqueue_many` then leaves
        it out), or reject with DuplicateJob. `start_within`: skipped if nobody starts it by then.
        `tx`: a connection of yours to the store's database, inside a transaction; the job exists
        when that commits (open the app before you begin it, or the two may wait for each other).
        None means what the type says.

        For `run_now` alone: `wait`, how long for the queue and a worker together; `on_busy`, wait
        for a queue that is held or reject at once; `request`, whom others see as its holder.
        """
        check_on_conflict(on_conflict)
        like = new_job(
            self.policy,
            delay=delay,
            at=at,
            key=key,
            bucket=bucket,
            active_key=active_key,
            priority=priority,
            queue=queue,
            slot=slot,
            max_attempts=max_attempts,
            start_within=start_within,
            group_id=group_id,
        )
        direct = DirectRunOptions.new(
            wait=wait, on_busy=on_busy, request=request, max_attempts=max_attempts
        )
        return ConfiguredJobType(self, like, on_conflict=on_conflict, tx=tx, direct=direct)

    def encode_params(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The JSON text of a call's arguments."""
        return self._dump(self._named(args, kwargs) if args else kwargs)

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._positional):
            raise InvalidParams(
                f'"{self.name}" takes {len(self._positional)} arguments without a name, not '
                f"{len(args)}; it knows: {', '.join(self._positional) or 'none'}"
            )
        named = dict(zip(self._positional, args, strict=False))
        if not kwargs:
            return named
        if twice := named.keys() & kwargs.keys():
            raise InvalidParams(f'"{self.name}" was given "{min(twice)}" twice; give it once')
        return named | kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._decorated(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job type {self.name!r}, {self.delivery}, queue {self.queue!r}>"


def _read(handler: Callable[..., Any], policy: Policy) -> tuple[Callable[..., Any], Signature]:
    """What to call for a run, and what that takes and returns."""
    if isinstance(handler, type):
        return read_class(handler, policy.name, executor=policy.executor)
    return handler, read_signature(handler, policy.name, executor=policy.executor)


class ConfiguredJobType(Generic[P, R_co]):
    """A job type with the options of one enqueue."""

    __slots__ = (
        "_may_enqueue",
        "_mould",
        "_needs_slot",
        "client",
        "direct",
        "group_id",
        "like",
        "on_conflict",
        "tx",
        "type",
    )

    def __init__(
        self,
        job_type: JobType[P, R_co],
        like: NewJob,
        *,
        on_conflict: OnConflict = "return",
        tx: Any = None,
        direct: DirectRunOptions = DirectRunOptions(),  # noqa: B008 - frozen
    ) -> None:
        self.direct: Final = direct
        self.on_conflict: Final = on_conflict
        self.tx: Final = tx
        self.group_id: Final = like.group_id
        self.type: Final = job_type
        self.client: Final = job_type.client
        self.like: Final = like
        self._mould: Final = JobFactory(like)
        self._needs_slot: Final = like.delivery is Delivery.ONCE and like.slot is None
        self._may_enqueue: Final = direct == DirectRunOptions() and not self._needs_slot

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Store a job with these arguments and options; when it answers, the job survives."""
        return await self.enqueue_text(self.params(args, kwargs))

    async def enqueue_text(self, params: str) -> Handle[R_co]:
        """The same with params that are JSON text already, checked by the type's codec."""
        self._require_slot()
        store = await self.client.store()
        job = self.make(self.client.ids.job(), params)
        added = await (store.add([job]) if self.tx is None else add_within(store, self.tx, [job]))
        return self.to_handle(job.id, added[0])

    async def run_now(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Run it before all others of its queue; answers when a worker has taken it."""
        like = self.make(self.client.ids.job(), "")
        require_direct(like, self.tx)
        job = replace(
            like,
            params=self.type.encode_params(args, kwargs),
            max_attempts=self.direct.max_attempts or 1,
        )
        return Handle(await run_now(self.client, job, self.direct), self.client, created=True)

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> "Bound[R_co]":
        """These arguments, checked and ready for `app.enqueue_many`."""
        return Bound(self, self.params(args, kwargs))

    def make(self, job_id: JobId, params: str) -> NewJob:
        """The job to store."""
        return self._mould.make(job_id, params)

    def to_handle(self, asked: JobId, added: Added) -> Handle[R_co]:
        """The handle of what the store answered, or the error it means."""
        if added.refused is not None:
            raise InvalidJob(f'a job of type "{self.type.name}" was refused: {added.refused}')
        created = added.created or added.id == asked  # our own repeated write is no conflict
        if not created and self.on_conflict == "reject":
            raise DuplicateJob(
                f'a job of type "{self.type.name}" was not stored: job {added.id} has its key or '
                "slot; use another, or on_conflict='return' to get that job",
                existing=added.id,
            )
        return Handle(added.id, self.client, created=created)

    def params(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The JSON text of a call's arguments, if it may be made at all."""
        if not self._may_enqueue:
            self.direct.require_unused()
            self._require_slot()
        return self.type.encode_params(args, kwargs)

    def _require_slot(self) -> None:
        if self._needs_slot:
            raise InvalidJob(
                f'"{self.type.name}" is delivered once per slot; say which one it takes: '
                ".options(slot=datetime(…, tzinfo=UTC))"
            )


class Bound(Generic[R_co]):
    """One call, checked and not yet stored."""

    __slots__ = ("configured", "params")

    def __init__(self, configured: ConfiguredJobType[..., R_co], params: str) -> None:
        self.configured = configured
        self.params = params


async def add_within(store: Store, connection: Any, jobs: list[NewJob]) -> list[Added]:
    """Add inside the caller's own transaction, on a store that can."""
    if Capability.TRANSACTIONS not in store.capabilities:
        raise InvalidArgument(
            "tx was given, but this store cannot join a caller's transaction; leave tx out"
        )
    return await cast("Transactions", store).add_within(connection, jobs)
