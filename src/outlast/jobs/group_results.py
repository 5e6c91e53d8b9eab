"""The results of a group: how each member ended, in the order of the members."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.state import State
from outlast.errors import JobNotFound
from outlast.jobs.client import Client, detail_of, not_succeeded
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter

R_co = TypeVar("R_co", covariant=True)

READS_AT_ONCE: Final = 20
"""Members whose runs are read at the same time."""

JOBS_PER_READ: Final = 1000


@dataclass(frozen=True, slots=True)
class MemberResult(Generic[R_co]):
    """How one member of a group ended, or the state it is in; a retry chain by its last job.

    `value` is the result of the handler if `state` is `succeeded`; `error` the error of the last
    run; `reason` why the job ended so.
    """

    id: JobId
    type: str
    state: State
    value: R_co | None
    error: str | None
    reason: str | None
    _detail: str = field(default="", repr=False, compare=False)

    def result(self) -> R_co:
        """Return the result; JobNotSucceeded if the member did not succeed."""
        if self.state is not State.SUCCEEDED:
            raise not_succeeded(
                self.id, self.type, self.state, self.reason, self.error, self._detail
            )
        return self.value  # type: ignore[return-value]  # a handler that succeeded returned it


async def read_results(client: Client, group_id: str, total: int) -> list[MemberResult[Any]]:
    """Return the result of each member, in the order in which they were given to the group.

    Raises JobNotFound if members were pruned.
    """
    store = await client.store()
    members = await _last_jobs(store, group_id)
    if len(members) < total:
        raise JobNotFound(
            f"group {group_id} has {total} members and {total - len(members)} of them are not in "
            "this store; ended members are pruned after `retention`, so read the results before, "
            "or lengthen it"
        )
    results: list[MemberResult[Any]] = []
    for start in range(0, len(members), READS_AT_ONCE):
        some = members[start : start + READS_AT_ONCE]
        results += await asyncio.gather(*(_result(client, store, job) for job in some))
    return results


async def _last_jobs(store: Store, group_id: str) -> list[Job]:
    """Return the last job of each member's chain, in the order of the members."""
    last: dict[JobId, Job] = {}
    first: dict[JobId, int] = {}
    before: int | None = None
    while page := await store.find(Filter(group=group_id), limit=JOBS_PER_READ, before=before):
        for job in page:  # the newest first
            last.setdefault(job.root_id, job)
            first[job.root_id] = job.seq
        before = page[-1].seq
    return [last[root] for root in sorted(first, key=lambda root: first[root])]


async def _result(client: Client, store: Store, job: Job) -> MemberResult[Any]:
    runs = await store.runs(job.id) if job.is_final else []
    run, envelopes = (runs[-1] if runs else None), client.envelopes
    value = None
    if job.state is State.SUCCEEDED:
        text = envelopes.unwrap_result(run.result if run else None, job)
        value = client.load_result(job.type, text)
    return MemberResult(
        id=job.id,
        type=job.type,
        state=job.state,
        value=value,
        error=envelopes.reveal(run).error if run else None,
        reason=envelopes.reveal(job).reason,
        _detail=detail_of(run.error if run else None),
    )
