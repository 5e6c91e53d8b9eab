"""`outlast cancel` and `outlast retry`: one job, or many, seen and counted before."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import click

from outlast.cli.command import CommandContext, Exit, verb
from outlast.cli.confirm import confirm
from outlast.cli.job_filter import is_filter, parse
from outlast.cli.job_search import search_jobs
from outlast.cli.show import find
from outlast.clock import SystemClock
from outlast.core.job import Job
from outlast.core.lineage import RETRYABLE
from outlast.core.state import FINAL, State
from outlast.errors import CallerError, InvalidArgument

JobAction = Callable[[Job], Awaitable[Any]]

SHOWN = 5
UNFINISHED = frozenset(State) - FINAL


@verb("cancel")
@click.argument("which", nargs=-1, required=True)
@click.option("--reason", help="Why; it is kept with the job.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def cancel(
    desk: CommandContext, /, which: tuple[str, ...], reason: str | None, yes: bool
) -> int:
    """Cancel the job of that id, or every unfinished job that fits the filters.

    What waits will not run; what runs is asked to stop.
    """

    async def one(job: Job) -> str:
        return await desk.app.cancel(job.id, reason)

    if not any(map(is_filter, which)):
        return await _named(desk, which, one)
    jobs = await _fitting(desk, which, among=UNFINISHED, default=UNFINISHED)
    return await _all(desk, jobs, one, "cancel", yes=yes)


@verb("retry")
@click.argument("which", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def retry(desk: CommandContext, /, which: tuple[str, ...], yes: bool) -> int:
    """Run a job again as a new, linked job; or every finished one that fits the filters.

    With filters and no state: only dead letters are meant. What was retried already is left out.
    """

    async def one(job: Job) -> str:
        return (await desk.app.retry(job.id)).id

    if not any(map(is_filter, which)):
        return await _named(desk, which, one)
    jobs = await _fitting(desk, which, among=RETRYABLE, default=frozenset({State.DEAD_LETTER}))
    last = [job for job in jobs if await _is_last(desk, job)]
    return await _all(desk, last, one, "retry", yes=yes)


async def _is_last(desk: CommandContext, job: Job) -> bool:
    chain = await desk.app.store.chain(job.id)
    return bool(chain) and chain[-1].id == job.id


async def _named(desk: CommandContext, ids: tuple[str, ...], act: JobAction) -> int:
    for text in ids:
        job = await find(desk, text)
        _tell(desk, job, await act(job))
    return Exit.OK


async def _fitting(
    desk: CommandContext,
    words: tuple[str, ...],
    *,
    among: frozenset[State],
    default: frozenset[State],
) -> list[Job]:
    """Who fits, of those states only: the store looks at nobody else."""
    if not all(map(is_filter, words)):
        raise InvalidArgument("ids and filters were mixed; give the one or the other")
    wanted = parse(words, now=SystemClock().now())
    wanted.store = replace(wanted.store, states=among & (wanted.store.states or default))
    return [job async for job in search_jobs(desk.app.store, wanted, desk.out)]


def _agreed(desk: CommandContext, jobs: list[Job], does: str, *, yes: bool) -> bool:
    kinds = Counter(f"{job.type} {job.state}" for job in jobs).most_common(SHOWN)
    desk.out.message(f"{len(jobs):,} jobs: {', '.join(f'{n:,} {kind}' for kind, n in kinds)}")
    return yes or confirm(f"{does} all {len(jobs):,}?")


async def _all(
    desk: CommandContext, jobs: list[Job], act: JobAction, does: str, *, yes: bool
) -> int:
    if not jobs or not _agreed(desk, jobs, does, yes=yes):
        desk.out.message("nothing was changed" if jobs else "no job fits")
        return Exit.OK
    refused = 0
    with desk.out.progress(does, len(jobs)) as advance:
        for job in jobs:
            try:
                _tell(desk, job, await act(job))
            except CallerError as error:  # it moved on meanwhile
                refused += 1
                desk.out.message(str(error))
            advance()
    desk.out.message(f"{does}: {len(jobs) - refused:,} done, {refused:,} not")
    return Exit.REFUSED if refused else Exit.OK


def _tell(desk: CommandContext, job: Job, answer: object) -> None:
    if desk.out.as_json:
        desk.out.record({"id": job.id, "answer": str(answer)})
    else:
        desk.out.line(f"{job.id}  {answer}")
