"""`outlast worker`: run jobs until stopped."""

import asyncio
import logging
import os
import secrets
import sys
from random import SystemRandom

import click

from outlast.cli.logging_setup import FORMATS, LEVELS, configure
from outlast.cli.target import find
from outlast.clock import SystemClock
from outlast.config import Settings
from outlast.core.ids import Ids
from outlast.errors import OutlastError
from outlast.scheduler.loop import TriggerLoop
from outlast.store.contract import Store
from outlast.store.open import open_store
from outlast.worker.supervisor.options import WorkerExit, WorkerOptions
from outlast.worker.supervisor.supervisor import Supervisor

log = logging.getLogger("outlast.worker")

CHILD = ["-m", "outlast.cli.worker_child"]


def _names(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(name.strip() for name in value.split(","))


def _bytes(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    number, unit = value[:-1], units.get(value[-1:].upper())
    if unit is None or not number.isdigit() or not int(number):
        raise click.BadParameter(f"{value!r} is not a size; write 500M or 2G")
    return int(number) * unit


@click.command("worker")
@click.argument("app", required=False)
@click.option("-a", "--app", "app_option", help="The app, as for the other commands.")
@click.option(
    "-q", "--queues", callback=_names, help="Queues, separated by commas [all queues of the app]."
)
@click.option("-t", "--types", callback=_names, help="Job types, separated by commas [all].")
@click.option(
    "-p",
    "--processes",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of child processes.",
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 10_000),
    help="How many jobs each child runs at a time [the app's setting].",
)
@click.option(
    "--burst",
    is_flag=True,
    help="Run all due jobs, then exit: 0 if none failed permanently, else 1.",
)
@click.option(
    "--instance-id",
    envvar="OUTLAST_INSTANCE_ID",
    help="Name of this worker, the same after a restart [host and a number].",
)
@click.option(
    "--topology",
    type=click.Choice(["pool", "single"]),
    default="pool",
    show_default=True,
    help="single: refuse to start while another worker of the same scope runs.",
)
@click.option(
    "--scope",
    default="default",
    show_default=True,
    help="Scope within which a single worker is the only one.",
)
@click.option("--max-jobs", type=click.IntRange(1), help="Replace a child after this many jobs.")
@click.option(
    "--max-memory", callback=_bytes, help="Replace a child that uses more memory, such as 500M."
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="Lowest level that is logged.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Format of the log on stderr.",
)
def worker_command(app: str | None, app_option: str | None, **options: object) -> None:
    """Run the jobs of APP, given as module:attribute, in OUTLAST_APP or in pyproject.toml.

    SIGTERM or Ctrl-C: claim no more jobs, let running jobs end within the app's grace, release the
    rest, exit 0. A second one: release all jobs now, exit 1. Exit 2: the app, an option or the
    store is unusable. Exit 3: another worker has the same instance id or scope.
    """
    plan = WorkerOptions(app=_address(app or app_option), **options)  # type: ignore[arg-type]  # click checks them
    configure(plan.log_level, plan.log_format, non_blocking=True)
    sys.exit(asyncio.run(_run(plan)))


def _address(app: str | None) -> str:
    try:
        found = find(app, None).enter().app
    except OutlastError as error:
        raise click.UsageError(str(error)) from error
    if found is None:
        raise click.UsageError("no app given; write module:attribute, such as jobs:app")
    return found.value


def _abandon() -> None:
    log.error("the store does not answer; exiting, other workers reclaim the unfinished jobs")
    logging.shutdown()  # flushes the log
    os._exit(WorkerExit.FAILED)


def _report(why: str) -> None:
    click.echo(f"outlast: {why}", err=True)


async def _run(plan: WorkerOptions) -> int:
    clock = SystemClock()
    ids = Ids(clock.now, secrets.randbits)
    random = SystemRandom().random

    async def trigger(store: Store, settings: Settings, changed: asyncio.Event) -> None:
        await TriggerLoop(
            store, ids.job, settings.poll, clock=clock, random=random, changed=changed
        ).run()

    supervisor = Supervisor(
        plan,
        program=CHILD,
        open_store=open_store,
        clock=clock,
        ids=ids,
        random=random,
        exit_now=_abandon,
        report=log.error if plan.log_format == "json" else _report,
        background_services=trigger,
    )
    return await supervisor.run()
