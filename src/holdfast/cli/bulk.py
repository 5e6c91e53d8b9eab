"""`holdfast cancel` and `holdfast retry`: one job, or many, seen and counted before."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import click

from holdfast.cli.filters import parse
from holdfast.cli.frame import Desk, Exit, verb
from holdfast.cli.search import matching
from holdfast.cli.show import find
from holdfast.clock import SystemClock
from holdfast.core.job import Job
from holdfast.core.state import FINAL
from holdfast.errors import CallerError, InvalidJob

SHOWN = 5
RETRIED = frozenset({"failed", "dead_letter", "skipped", "cancelled"})


@verb("cancel")
@click.argument("which", nargs=-1, required=True)
@click.option("--reason", help="Why; it is kept with the job.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def cancel(desk: Desk, /, which: tuple[str, ...], reason: str | None, yes: bool) -> int:
    """Cancel the job of that id, or every unfinished job that fits the filters.

    What waits will not run; what runs is asked to stop.
    """

    async def one(job: Job) -> str:
        return await desk.app.cancel(job.id, reason)

    return await _each(
        desk, which, one, does="cancel", fits=lambda job: job.state not in FINAL, yes=yes
    )


@verb("retry")
@click.argument("which", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def retry(desk: Desk, /, which: tuple[str, ...], yes: bool) -> int:
    """Run a job again as a new, linked job; or every finished one that fits the filters.

    With filters and no state: only dead letters are meant.
    """
    if all(":" in word for word in which) and not any(word.startswith("state:") for word in which):
        which = (*which, "state:dead_letter")

    async def one(job: Job) -> str:
        return (await desk.app.retry(job.id)).id

    return await _each(
        desk, which, one, does="retry", fits=lambda job: job.state in RETRIED, yes=yes
    )


async def _each(
    desk: Desk,
    which: tuple[str, ...],
    act: Callable[[Job], Awaitable[Any]],
    *,
    does: str,
    fits: Callable[[Job], bool],
    yes: bool,
) -> int:
    if not any(":" in word for word in which):
        for text in which:
            job = await find(desk, text)
            _tell(desk, job, await act(job))
        return Exit.FINE
    if not all(":" in word for word in which):
        raise InvalidJob("ids and filters were mixed; give the one or the other")
    wanted = parse(which, now=SystemClock().now())
    jobs = [job async for job in matching(desk.app.store, wanted, desk.out) if fits(job)]
    if not jobs or not _agreed(desk, jobs, does, yes=yes):
        desk.out.say("nothing was changed" if jobs else "no job fits")
        return Exit.FINE
    return await _all(desk, jobs, act, does)


def _agreed(desk: Desk, jobs: list[Job], does: str, *, yes: bool) -> bool:
    kinds = Counter(f"{job.type} {job.state}" for job in jobs).most_common(SHOWN)
    desk.out.say(f"{len(jobs):,} jobs: {', '.join(f'{n:,} {kind}' for kind, n in kinds)}")
    return yes or click.confirm(f"{does} all {len(jobs):,}?", err=True)


async def _all(desk: Desk, jobs: list[Job], act: Callable[[Job], Awaitable[Any]], does: str) -> int:
    refused = 0
    with desk.out.progress(does, len(jobs)) as advance:
        for job in jobs:
            try:
                _tell(desk, job, await act(job))
            except CallerError as error:  # it moved on meanwhile
                refused += 1
                desk.out.say(str(error))
            advance()
    desk.out.say(f"{does}: {len(jobs) - refused:,} done, {refused:,} not")
    return Exit.REFUSED if refused else Exit.FINE


def _tell(desk: Desk, job: Job, answer: object) -> None:
    if desk.out.as_json:
        desk.out.record({"id": job.id, "answer": str(answer)})
    else:
        desk.out.line(f"{job.id}  {answer}")
