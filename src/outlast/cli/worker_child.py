"""Entry point of a worker child process; the supervisor starts it."""

import asyncio
import faulthandler
import json
import os
import signal
import socket
import sys
from functools import partial
from typing import Any, Final

import outlast
from outlast.app import Outlast
from outlast.cli.app_loader import load_app
from outlast.cli.logging_setup import configure
from outlast.clock import SystemClock
from outlast.core.address import shown_address
from outlast.errors import OutlastError
from outlast.jobs.lifespan import NO_LIFESPAN
from outlast.process_identity import keep_mark
from outlast.scheduler.loop import sync_declared
from outlast.telemetry.events import has_sinks
from outlast.worker.engine import WorkerEngine
from outlast.worker.event_loop import loop_factory
from outlast.worker.maintenance.pruner import dump_retentions
from outlast.worker.supervisor.child_main import WorkerChild, orphan_timeout, watch_lifeline
from outlast.worker.supervisor.child_process import DUMP_SIGNAL
from outlast.worker.supervisor.control_channel import ControlChannel, send_sync
from outlast.worker.supervisor.lease_guard import guard_leases
from outlast.worker.supervisor.options import WorkerExit
from outlast.worker.supervisor.parent_death import die_with_supervisor, is_supervisor_gone
from outlast.worker.supervisor.shared_lease_table import SharedLeaseTable, SharedLeaseWriter

GROUP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(order: dict[str, Any]) -> int:
    """Load the app, report it to the supervisor, and run jobs until told to stop.

    Args:
        order: What to run, and the inherited file descriptors (`fds`).

    Returns:
        The exit code of the process.
    """
    fds = order["fds"]
    for fd in fds.values():
        os.set_inheritable(fd, False)  # programs that a handler starts must not hold it open
    die_with_supervisor(fds["lifeline"])
    configure(order["log_level"], order["log_format"])
    if sys.stderr is not None:  # None if the worker was started with stderr closed
        faulthandler.enable()
    faulthandler.register(DUMP_SIGNAL, file=fds["dump"], all_threads=True)
    for each in GROUP_SIGNALS:
        signal.signal(each, _ignore_group_signal)
    os.register_at_fork(after_in_child=_restore_signals)
    keep_mark(fds["mark"])
    line = socket.socket(fileno=fds["channel"])
    held = SharedLeaseWriter(SharedLeaseTable(fds["lease_table"]), SystemClock().monotonic)
    try:
        app = load_app(order["app"])
        wanted = _wanted(order)
        engine = app._new_engine(held, **wanted, app_address=order["app"])  # noqa: SLF001
        send_sync(line, "hello", **_hello(app, engine))
    except OutlastError as error:
        send_sync(line, "unusable", why=str(error))
        return WorkerExit.UNUSABLE
    with asyncio.Runner(loop_factory=loop_factory(uvloop=app.settings.uvloop)) as runner:
        runner.run(_work(app, engine, held, line, fds["lifeline"]))
    return WorkerExit.OK


async def _work(
    app: Outlast, engine: WorkerEngine, held: SharedLeaseWriter, line: socket.socket, lifeline: int
) -> None:
    child = WorkerChild(
        app.store,
        engine,
        app.settings,
        leases=held,
        channel=await ControlChannel.connect(line),
        is_orphan=lambda: is_supervisor_gone(lifeline),
        crash=lambda: os._exit(WorkerExit.FAILED),
        write_schedules=lambda: sync_declared(app.sync_schedules),
        write_queues=partial(sync_declared, app.sync_queues, what="queues"),
        lifespan=app._new_lifespan() or NO_LIFESPAN,  # noqa: SLF001 - the app's own command
    )
    watch_lifeline(lifeline, child, orphan_timeout(app.settings))
    guard_leases(held, app.settings.lease)
    await child.run()


def _wanted(order: dict[str, Any]) -> dict[str, Any]:
    return {name: order[name] for name in ("queues", "types", "concurrency")}


def _hello(app: Outlast, engine: WorkerEngine) -> dict[str, Any]:
    if app.url is None:
        raise outlast.InvalidType(
            "this app was created with a store object, but each process of a worker opens its own "
            'connection; give a URL: Outlast("sqlite:///jobs.db")'
        )
    return {
        "url": app.url,
        "store": shown_address(app.url),
        "app": app.name,
        "schedules": sorted(app._declared),  # noqa: SLF001 - the app's own command
        "retentions": dump_retentions(app.registry.retentions()),
        "settings": app.settings.dump(),
        "queues": engine.queues,
        "warnings": [why for each in engine.queues if (why := app.registry.unknown_queue(each))],
        "types": engine.types,
        "concurrency": engine.concurrency,
        "version": outlast.__version__,
        "wants_events": has_sinks(),
    }


def _restore_signals() -> None:
    """Restore the default signal handlers in a process that a handler forks."""
    for each in GROUP_SIGNALS:
        if signal.getsignal(each) is _ignore_group_signal:
            signal.signal(each, signal.SIG_DFL)


def _ignore_group_signal(*_: object) -> None:
    """Ignore a signal to the process group: the supervisor gets it too and decides."""


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
