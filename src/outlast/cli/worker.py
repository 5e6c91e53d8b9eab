"""`outlast worker`: run jobs until stopped."""

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from random import SystemRandom

import click

from outlast.cli.logging_setup import FORMATS, LEVELS, configure
from outlast.cli.target import find
from outlast.clock import SystemClock
from outlast.config import Settings
from outlast.core.ids import Ids
from outlast.core.printable import printable
from outlast.errors import OutlastError
from outlast.scheduler.loop import TriggerLoop
from outlast.store.contract import Store
from outlast.store.open import open_store
from outlast.worker.supervisor.health import WorkerHealth
from outlast.worker.supervisor.options import WorkerExit, WorkerOptions
from outlast.worker.supervisor.probe_address import ProbeAddress, parse_address
from outlast.worker.supervisor.probe_server import ProbeServer
from outlast.worker.supervisor.service_manager import ServiceManager
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


def _listen(_: click.Context, __: click.Parameter, value: str | None) -> ProbeAddress | None:
    try:
        return None if value is None else parse_address(value)
    except OutlastError as error:
        raise click.BadParameter(str(error)) from error


def _check_listen(address: ProbeAddress | None, *, is_public: bool) -> None:
    if is_public and address is None:
        raise click.UsageError("--health-public needs --health, such as --health 0.0.0.0:8080")
    if address is not None and not address.is_loopback and not is_public:
        raise click.UsageError(
            f"other machines reach {address}; write --health 127.0.0.1:{address.port}, or add "
            "--health-public, which serves only /healthz and /readyz without details"
        )


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
    help="single: refuse to start while another worker of the same scope runs [the app's].",
)
@click.option(
    "--scope",
    help="Scope within which a single worker is the only one [the app's, else default].",
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
@click.option(
    "--health",
    callback=_listen,
    help="Serve probes here: /healthz, /readyz, /backlog. Such as 127.0.0.1:8080.",
)
@click.option(
    "--health-public",
    is_flag=True,
    help="Let --health be an address that other machines reach; /backlog and reasons are left out.",
)
def worker_command(
    app: str | None,
    app_option: str | None,
    health: ProbeAddress | None,
    health_public: bool,
    **options: object,
) -> None:
    """Run the jobs of APP, given as module:attribute, in OUTLAST_APP or in pyproject.toml.

    SIGTERM or Ctrl-C: claim no more jobs, let running jobs end within the app's grace, release the
    rest, exit 0. A second one: release all jobs now, exit 1. Exit 2: the app, an option or the
    store is unusable. Exit 3: another worker has the same instance id or scope.
    """
    plan = WorkerOptions(app=_address(app or app_option), **options)  # type: ignore[arg-type]  # click checks them
    _check_listen(health, is_public=health_public)
    configure(plan.log_level, plan.log_format, non_blocking=True)
    sys.exit(asyncio.run(_run_with_probes(plan, health, is_public=health_public)))


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
    click.echo(printable(f"outlast: {why}"), err=True)


def _reporter(plan: WorkerOptions) -> Callable[[str], None]:
    return log.error if plan.log_format == "json" else _report


async def _run_with_probes(
    plan: WorkerOptions, address: ProbeAddress | None, *, is_public: bool
) -> int:
    """Run the worker, and answer probes and the service manager meanwhile."""
    manager = ServiceManager.take(os.environ)
    health = WorkerHealth(SystemClock(), manager.notify)
    async with AsyncExitStack() as stack:
        if address is not None:
            server = ProbeServer(health, is_public=is_public)
            try:
                await stack.enter_async_context(server.listening(address))
            except OSError as error:
                why = error.strerror or str(error)
                _reporter(plan)(f"cannot listen on {address}: {why}; give --health another port")
                return WorkerExit.UNUSABLE
        alive = asyncio.create_task(manager.keep_alive(lambda: health.is_live))
        stack.callback(alive.cancel)
        return await _run(plan, health)


async def _run(plan: WorkerOptions, health: WorkerHealth) -> int:
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
        health=health,
        report=_reporter(plan),
        background_services=trigger,
    )
    return await supervisor.run()
