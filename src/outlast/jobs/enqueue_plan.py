"""How one enqueue writes its job: options, conflict policy, caller connection."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

from outlast.core.delivery import Delivery
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.errors import DuplicateJob, InvalidArgument, InvalidJob
from outlast.jobs.client import Client
from outlast.jobs.client_source import ClientSource
from outlast.jobs.direct_run import DirectRunOptions, require_direct, run_now
from outlast.jobs.handle import Handle
from outlast.jobs.options import JobFactory
from outlast.jobs.uniqueness import OnConflict
from outlast.store.contract import Capability, Store
from outlast.store.contract.jobs import Added
from outlast.store.contract.transactions import Transactions

EncodeParams = Callable[[tuple[Any, ...], dict[str, Any]], str]
"""From the arguments of a call to their payload."""

NO_DIRECT_OPTIONS: Final = DirectRunOptions()


class EnqueuePlan:
    """A job type with the options of one enqueue, as the job modules use it."""

    __slots__ = (
        "_direct",
        "_encode",
        "_factory",
        "_may_enqueue",
        "_needs_slot",
        "_source",
        "like",
        "on_conflict",
        "tx",
        "type_name",
    )

    def __init__(
        self,
        type_name: str,
        source: ClientSource,
        like: NewJob,
        *,
        encode: EncodeParams,
        on_conflict: OnConflict,
        tx: Any,
        direct: DirectRunOptions,
    ) -> None:
        self.type_name: Final = type_name
        self._source: Final = source
        self.like: Final = like
        self.on_conflict: Final = on_conflict
        self.tx: Final = tx
        self._direct: Final = direct
        self._encode: Final = encode
        self._factory: Final = JobFactory(like)
        self._needs_slot: Final = like.delivery is Delivery.ONCE and like.slot is None
        self._may_enqueue: Final = direct == NO_DIRECT_OPTIONS and not self._needs_slot

    @property
    def client(self) -> Client:
        """The client of its app; ConfigurationError if its job module is in no app."""
        return self._source.get()

    async def enqueue(self, params: str) -> Handle[Any]:
        """Store a job with this payload, which the codec of the type has checked."""
        self.require_slot()
        store = await self.client.store()
        job = self.make(self.client.ids.job(), params)
        added = await (store.add([job]) if self.tx is None else add_within(store, self.tx, [job]))
        return self.to_handle(job.id, added[0])

    async def run_now(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle[Any]:
        """Store a job before all others of its queue and wait for its claim."""
        like = self.make(self.client.ids.job(), "")
        require_direct(like, self.tx)
        job = replace(
            like,
            params=self._encode(args, kwargs),
            max_attempts=self._direct.max_attempts or 1,
        )
        return Handle(await run_now(self.client, job, self._direct), self.client, created=True)

    def make(self, job_id: JobId, params: str) -> NewJob:
        """Return the job to store."""
        return self._factory.make(job_id, params)

    def to_handle(self, asked: JobId, added: Added) -> Handle[Any]:
        """Return the handle of a stored job, or raise the error of a refused one."""
        if added.refused is not None:
            raise InvalidJob(f'a job of type "{self.type_name}" was refused: {added.refused}')
        created = added.created or added.id == asked  # a repeated write of this job: no conflict
        if not created and self.on_conflict == "reject":
            raise DuplicateJob(
                f'a job of type "{self.type_name}" was not stored: job {added.id} has its key or '
                "slot; use another, or on_conflict='existing' to get that job",
                existing=added.id,
            )
        return Handle(added.id, self.client, created=created, replaced=added.replaced)

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the payload of a call; InvalidJob if the options do not allow an enqueue."""
        if not self._may_enqueue:
            self._direct.require_unused()
            self.require_slot()
        return self._encode(args, kwargs)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the payload of a bound job, which may get its slot from a schedule."""
        if not self._may_enqueue:
            self._direct.require_unused()
        return self._encode(args, kwargs)

    def require_slot(self) -> None:
        """Raise InvalidJob if the job needs a slot and has none."""
        if self._needs_slot:
            raise InvalidJob(
                f'"{self.type_name}" is delivered once per slot; say which one it takes: '
                ".options(slot=datetime(…, tzinfo=UTC))"
            )


async def add_within(store: Store, connection: Any, jobs: list[NewJob]) -> list[Added]:
    """Add jobs in the transaction of a caller connection; InvalidArgument if the store cannot."""
    if Capability.TRANSACTIONS not in store.capabilities:
        raise InvalidArgument(
            "tx was given, but this store cannot join a caller's transaction; leave tx out"
        )
    return await cast("Transactions", store).add_within(connection, jobs)
