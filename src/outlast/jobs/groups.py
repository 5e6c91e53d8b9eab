"""Group manager: start, watch and cancel groups of jobs."""

import asyncio
import builtins
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Generic, Literal, TypeVar

from outlast.core.duration import Duration, parse_duration
from outlast.core.group import (
    ClosePolicy,
    ClosingGroup,
    Group,
    GroupMode,
    NewGroup,
    OnMemberFailure,
    check_group,
)
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.limits import repr_short
from outlast.core.state import State
from outlast.errors import (
    DuplicateJob,
    GroupNotFound,
    InvalidArgument,
    InvalidGroup,
    OperatorError,
    TransitionRefused,
    TypeNotFound,
    WaitTimeout,
)
from outlast.jobs.client import Client
from outlast.jobs.completion import until_over
from outlast.jobs.enqueue_plan import EnqueuePlan
from outlast.jobs.group_closing import end_remaining_members
from outlast.jobs.group_results import MemberResult, read_results
from outlast.jobs.jobtype import Bound, plan_of
from outlast.jobs.options import JobFactory
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added, Filter

ModeName = Literal["parallel", "sequential"]
OnFailureName = Literal["stop", "continue", "skip"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

MAX_MEMBERS: Final = 100_000
"""Members of one group; all are held in memory and checked before the first is stored."""

CHUNK: Final = 1000
"""Members per write."""

PAGE: Final = 100
"""Default length of a page."""

_MAX_PAGE: Final = 10_000
_MAX_ID_LENGTH: Final = 64


class GroupHandle(Generic[R_co]):
    """A caller's handle on one group: wait for it, read its results, list its jobs, cancel it."""

    __slots__ = ("_client", "id")

    def __init__(self, group_id: str, client: Client) -> None:
        self.id = group_id
        self._client = client

    async def read(self) -> Group:
        """Return the group as it is stored now; GroupNotFound if there is none."""
        group = await (await self._client.store()).group(self.id)
        if group is None:
            raise missing(self.id)
        return group

    async def wait(self, timeout: Duration | None = None) -> Group:  # noqa: ASYNC109 - WaitTimeout names the group
        """Wait until all members have ended; return the group. WaitTimeout after `timeout`."""
        store = await self._client.store()
        seconds = (
            None if timeout is None else parse_duration(timeout, what="timeout").total_seconds()
        )
        try:
            async with asyncio.timeout(seconds) as limit:
                is_known = await until_over(store, self.id, poll=self._client.poll)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise WaitTimeout(
                f"group {self.id} is not over within {timeout}; it goes on, so wait again or "
                "cancel it"
            ) from error
        if not is_known:
            raise missing(self.id)
        return await self.read()

    async def results(self, *, wait: Duration | bool = False) -> list[MemberResult[R_co]]:
        """Return how each member ended, in the order in which they were given.

        A member that failed is in the list with its state and error; `result()` of it raises
        JobNotSucceeded. Raises JobNotFound if members were pruned.

        Args:
            wait: Wait until all members have ended: True, or at most that long, such as "30s";
                then WaitTimeout. Without it a member that has not ended has no value.
        """
        if wait is not False:
            group = await self.wait(None if wait is True else wait)
        else:
            group = await self.read()
        return await read_results(self._client, self.id, group.total)

    async def jobs(
        self,
        *,
        states: Collection[State] | None = None,
        limit: int = PAGE,
        before: int | None = None,
    ) -> list[Job]:
        """Return a page of its jobs, the newest first; `before=jobs[-1].seq` is the next page.

        A member with a retry chain is listed with every job of the chain.
        """
        store = await self._client.store()
        wanted = Filter(group=self.id, states=None if states is None else frozenset(states))
        return await store.find(wanted, limit=check_page(limit), before=before)

    async def cancel(self, reason: str | None = None) -> Group:
        """Cancel waiting members and ask running ones to stop; return the group.

        Its state is `cancelled`, or `running` until the last running member has stopped.
        TransitionRefused if the group has ended already.
        """
        store = await self._client.store()
        await store.stop_group(self.id, reason=reason)
        group = await self.read()
        if group.closing is None:
            raise TransitionRefused(f"group {self.id} is {group.state}; nothing is left to cancel")
        await end_remaining_members(
            store, ClosingGroup(self.id, group.closing), self._client.ids.job
        )
        return await self.read()

    def __repr__(self) -> str:
        return f"GroupHandle({self.id})"


class GroupManager:
    """Groups of jobs watched together: `await app.groups.start([load.bind(), send.bind()])`."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    async def start(
        self,
        bound: Iterable[Bound[R]],
        *,
        mode: ModeName = "parallel",
        on_failure: OnFailureName | None = None,
        name: str | None = None,
    ) -> GroupHandle[R]:
        """Store jobs as one group: `await app.groups.start([…], mode="sequential")`.

        All members are checked first, and none runs before all are stored. If one cannot be
        stored, none runs.

        Args:
            bound: At most 100,000 bound jobs: `send.bind(3)`.
            mode: `parallel` runs members as workers are free, `sequential` one after the other.
            on_failure: What happens to the other members when one fails for good or is
                cancelled. `continue` (default of `parallel`) changes nothing. `stop` (default
                of `sequential`) cancels waiting members and asks running ones to stop. `skip`
                skips waiting members. Jobs that a worker has claimed or prefetched still run.
            name: A name for lists.
        """
        client = self._client
        group_mode = _choice(GroupMode, mode, "mode")
        default = "stop" if group_mode is GroupMode.SEQUENTIAL else "continue"
        policy = _choice(
            OnMemberFailure, default if on_failure is None else on_failure, "on_failure"
        )
        members = _members(client, bound)
        new = check_group(
            NewGroup(
                id=client.ids.job(),
                total=len(members),
                mode=group_mode,
                on_failure=policy,
                name=name,
            )
        )
        store = await client.store()
        await store.add_group(new)
        builder = _GroupBuilder(client, store, JobId(new.id))
        try:
            await builder.fill(members)
        except Exception:
            await builder.give_up()
            raise
        return GroupHandle(new.id, client)

    async def get(self, group_id: str) -> Group:
        """Return the group as it is stored now; GroupNotFound if there is none."""
        return await self._handle(group_id).read()

    async def list(self, limit: int = PAGE, before: int | None = None) -> builtins.list[Group]:
        """Return a page of groups, the newest first; `before=groups[-1].seq` is the next page."""
        store = await self._client.store()
        return await store.find_groups(limit=check_page(limit), before=before)

    def handle(self, group_id: str) -> GroupHandle[Any]:
        """Return a handle on a group id, whether the group exists or not."""
        return self._handle(group_id)

    def _handle(self, group_id: str) -> GroupHandle[Any]:
        return GroupHandle(group_id_of(group_id), self._client)

    async def cancel(self, group_id: str, reason: str | None = None) -> Group:
        """Cancel waiting members and ask running ones to stop, as `GroupHandle.cancel` does."""
        return await self._handle(group_id).cancel(reason)


def group_id_of(text: str) -> str:
    """Return `text` if it can be a group's id; GroupNotFound otherwise."""
    if not isinstance(text, str) or not text.isascii() or not 0 < len(text) <= _MAX_ID_LENGTH:
        raise missing(text)
    return text


def check_page(limit: int) -> int:
    """Return `limit` if it is a valid page length; InvalidArgument otherwise."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_PAGE:
        raise InvalidArgument(
            f"limit is {repr_short(limit)}; use a whole number from 1 to {_MAX_PAGE:,}"
        )
    return limit


def missing(group_id: object) -> GroupNotFound:
    """Return the error for a group that is not stored."""
    return GroupNotFound(
        f"no group {repr_short(group_id)} is in this store; it was never stored, or pruned since"
    )


class _GroupBuilder:
    """Stores the members of one group in chunks."""

    def __init__(self, client: Client, store: Store, group_id: JobId) -> None:
        self._client = client
        self._store = store
        self._id = group_id
        self._factories: dict[EnqueuePlan, JobFactory] = {}

    async def fill(self, members: Sequence[Bound[Any]]) -> None:
        """Store members in the order given, then seal the group so that they may run."""
        for start in range(0, len(members), CHUNK):
            chunk = members[start : start + CHUNK]
            ids = self._client.ids.jobs(len(chunk))
            jobs = [self._job(each, job_id) for each, job_id in zip(chunk, ids, strict=True)]
            answers = await self._store.add(jobs)
            for index, (job, added) in enumerate(zip(jobs, answers, strict=True), start):
                self._require_stored(index, job, added)
        if not await self._store.seal_group(self._id):
            raise InvalidGroup(f"group {self._id} was stopped before all its members were stored")

    async def give_up(self) -> None:
        """End the stored members; a worker does the rest if the store fails."""
        with suppress(OperatorError):  # the caller gets the first error, not this one
            await self._store.stop_group(self._id, reason="member_refused")
            closing = ClosingGroup(self._id, ClosePolicy.STOP)
            await end_remaining_members(self._store, closing, self._client.ids.job)

    def _job(self, bound: Bound[Any], job_id: JobId) -> NewJob:
        plan, params = plan_of(bound)
        if plan not in self._factories:
            like = replace(plan.like, group_id=self._id, member=True)
            self._factories[plan] = JobFactory(like)
        return self._factories[plan].make(job_id, params)

    def _require_stored(self, index: int, job: NewJob, added: Added) -> None:
        what = f'member {index} of the group (a job of type "{job.type}") was not stored'
        if added.refused is not None:
            raise InvalidGroup(f"{what}: {added.refused}; the whole group was stopped, unrun")
        if added.id != job.id:
            raise DuplicateJob(
                f"{what}: job {added.id} has its key or slot; the whole group was stopped, unrun. "
                "Use another key, or leave that job out",
                existing=added.id,
            )


def _members(client: Client, bound: Iterable[Bound[Any]]) -> list[Bound[Any]]:
    """Return every member, checked; errors name its index."""
    members: list[Bound[Any]] = []
    for index, each in enumerate(bound):
        if index >= MAX_MEMBERS:
            raise InvalidGroup(f"a group of more than {MAX_MEMBERS:,} jobs; start several groups")
        _require_ours(client, index, each)
        members.append(each)
    if not members:
        raise InvalidGroup("a group without jobs; give it at least one")
    return members


def _require_ours(client: Client, index: int, each: object) -> None:
    if not isinstance(each, Bound):
        raise InvalidGroup(
            f"member {index} of the group is {repr_short(each)}; give bound jobs: send.bind(…)"
        )
    plan, _ = plan_of(each)
    if plan.client is not client:
        raise TypeNotFound(
            f'member {index} of the group: job type "{plan.type_name}" belongs to another '
            "app; register it here"
        )
    if plan.tx is not None:
        raise InvalidGroup(
            f"member {index} of the group has a tx; a group is stored by itself, so leave tx out"
        )
    if plan.like.replaces:
        raise InvalidGroup(
            f"member {index} of the group may replace another job; a group has jobs of its own, so "
            'leave out debounce and on_conflict="replace"'
        )
    if plan.like.group_id is not None:
        raise InvalidGroup(
            f"member {index} of the group has a group_id already; leave it out, the group has one"
        )


def _choice(kind: Any, value: object, what: str) -> Any:
    if not isinstance(value, str) or value not in set(kind):
        raise InvalidGroup(f"{what} is {repr_short(value)}; use {', '.join(kind)}")
    return kind(value)
