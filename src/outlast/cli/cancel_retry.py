"""`outlast cancel` and `outlast retry`: one job by id, or all jobs that match filters."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import click

from outlast.cli.command import CommandContext, Exit, command
from outlast.cli.confirm import confirm
from outlast.cli.job_filter import is_filter, parse
from outlast.cli.job_search import search_jobs
from outlast.cli.output import count
from outlast.cli.show import find
from outlast.clock import SystemClock
from outlast.core.job import Job
from outlast.core.lineage import RETRYABLE
from outlast.core.state import FINAL, State
from outlast.errors import CallerError, InvalidArgument

JobAction = Callable[[Job], Awaitable["Answer"]]


class Answer(NamedTuple):
    """What happened to a job: the text to print, and the fields of `--json` beside its id."""

    text: str
    fields: Mapping[str, str]


KINDS_SHOWN = 5
"""How many combinations of type and state the confirmation lists."""

UNFINISHED = frozenset(State) - FINAL


@command("cancel")
@click.argument("which", nargs=-1, required=True)
@click.option("--reason", help="Why; stored with the job.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def cancel(
    ctx: CommandContext, /, which: tuple[str, ...], reason: str | None, yes: bool
) -> int:
    """Cancel jobs by id, or every unfinished job that matches the filters.

    A waiting job never runs. A running job is asked to stop.
    """

    async def cancel_one(job: Job) -> Answer:
        state = await ctx.app.cancel(job.id, reason)
        text = "asked to stop (still running)" if state is State.RUNNING else state
        return Answer(text, {"state": state})

    if not any(map(is_filter, which)):
        return await _apply_to_ids(ctx, which, cancel_one)
    jobs = await _find_matches(ctx, which, among=UNFINISHED, default=UNFINISHED)
    return await _apply_to_all(ctx, jobs, cancel_one, ("cancel", "cancelled"), yes=yes)


@command("retry")
@click.argument("which", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
async def retry(ctx: CommandContext, /, which: tuple[str, ...], yes: bool) -> int:
    """Retry finished jobs, by id or by filters; each retry is a new job linked to the old one.

    Filters without a state select dead letters only. Jobs that already have a retry are skipped.
    """

    async def retry_one(job: Job) -> Answer:
        new_id = (await ctx.app.retry(job.id)).id
        return Answer(new_id, {"new_id": new_id})

    if not any(map(is_filter, which)):
        return await _apply_to_ids(ctx, which, retry_one)
    jobs = await _find_matches(ctx, which, among=RETRYABLE, default=frozenset({State.DEAD_LETTER}))
    last = [job for job in jobs if await _is_last_of_chain(ctx, job)]
    return await _apply_to_all(ctx, last, retry_one, ("retry", "retried"), yes=yes)


async def _is_last_of_chain(ctx: CommandContext, job: Job) -> bool:
    chain = await ctx.app.store.chain(job.id)
    return bool(chain) and chain[-1].id == job.id


async def _apply_to_ids(ctx: CommandContext, ids: tuple[str, ...], action: JobAction) -> int:
    for text in ids:
        job = await find(ctx, text)
        _print_answer(ctx, job, await action(job))
    return Exit.OK


async def _find_matches(
    ctx: CommandContext,
    words: tuple[str, ...],
    *,
    among: frozenset[State],
    default: frozenset[State],
) -> list[Job]:
    """Return the jobs that match, restricted to the states in `among`.

    The store applies the restriction, so jobs in other states are not read.
    """
    if not all(map(is_filter, words)):
        raise InvalidArgument("ids and filters cannot be mixed; give either ids or filters")
    wanted = parse(words, now=SystemClock().now())
    wanted.store = replace(wanted.store, states=among & (wanted.store.states or default))
    return [job async for job in search_jobs(ctx, wanted)]


def _is_confirmed(ctx: CommandContext, jobs: list[Job], verb: str, *, yes: bool) -> bool:
    kinds = Counter(f"{job.type} {job.state}" for job in jobs).most_common(KINDS_SHOWN)
    summary = ", ".join(f"{n:,} {kind}" for kind, n in kinds)
    ctx.out.message(f"{count(len(jobs), 'job')}: {summary}")
    return yes or confirm(f"{verb} {count(len(jobs), 'job')}?")


async def _apply_to_all(
    ctx: CommandContext, jobs: list[Job], action: JobAction, words: tuple[str, str], *, yes: bool
) -> int:
    verb, participle = words
    if not jobs or not _is_confirmed(ctx, jobs, verb, yes=yes):
        ctx.out.message("nothing changed" if jobs else "no matching jobs")
        return Exit.OK
    refused = 0
    with ctx.out.progress(verb, len(jobs)) as advance:
        for job in jobs:
            try:
                _print_answer(ctx, job, await action(job))
            except CallerError as error:  # the job changed its state since the search
                refused += 1
                ctx.out.message(str(error))
            advance()
    ctx.out.message(f"{len(jobs) - refused:,} {participle}, {refused:,} refused")
    return Exit.REFUSED if refused else Exit.OK


def _print_answer(ctx: CommandContext, job: Job, answer: Answer) -> None:
    if ctx.out.as_json:
        ctx.out.record({"id": job.id, **answer.fields})
    else:
        ctx.out.line(f"{job.id}  {answer.text}")
