"""The program of a worker's child process; started by the supervisor, not by people."""

import asyncio
import faulthandler
import json
import os
import signal
import socket
import sys
from typing import Any, Final

import outlast
from outlast.app import Outlast
from outlast.cli.app_loader import load_app
from outlast.cli.logging_setup import configure
from outlast.clock import SystemClock
from outlast.errors import OutlastError
from outlast.scheduler.loop import sync_declared
from outlast.telemetry.events import has_sinks
from outlast.worker.engine import WorkerEngine
from outlast.worker.supervisor.child_main import WorkerChild, orphan_timeout, watch_lifeline
from outlast.worker.supervisor.child_process import DUMP_SIGNAL
from outlast.worker.supervisor.control_channel import ControlChannel, send_sync
from outlast.worker.supervisor.options import WorkerExit
from outlast.worker.supervisor.shared_lease_table import SharedLeaseTable, SharedLeaseWriter

GROUP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(order: dict[str, Any]) -> int:
    """Load the app, say hello, and work as told."""
    ways = order["ways"]
    for way in ways.values():
        os.set_inheritable(way, False)  # or a program that a handler starts could keep it open
    configure(order["log_level"], order["log_format"])
    if sys.stderr is not None:  # as of a program started with it closed
        faulthandler.enable()
    faulthandler.register(DUMP_SIGNAL, file=ways["dump"], all_threads=True)
    for each in GROUP_SIGNALS:
        signal.signal(each, _leave_it_to_the_supervisor)
    os.register_at_fork(after_in_child=_hear_signals)
    line = socket.socket(fileno=ways["line"])
    held = SharedLeaseWriter(SharedLeaseTable(ways["board"]), SystemClock().monotonic)
    try:
        app = load_app(order["app"])
        engine = app.engine(held, **_wanted(order), app_address=order["app"])
        send_sync(line, "hello", **_hello(app, engine))
    except OutlastError as error:
        send_sync(line, "unfit", why=str(error))
        return WorkerExit.UNUSABLE
    asyncio.run(_work(app, engine, held, line, ways["lifeline"]))
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
        on_ready=lambda: sync_declared(app.sync_schedules),
    )
    watch_lifeline(lifeline, child, orphan_timeout(app.settings))
    await child.run()


def _wanted(order: dict[str, Any]) -> dict[str, Any]:
    return {name: order[name] for name in ("queues", "types", "concurrency")}


def _hello(app: Outlast, engine: WorkerEngine) -> dict[str, Any]:
    if app.url is None:
        raise outlast.InvalidType(
            "this app was given a store, not an address; a worker's processes each open their "
            'own, so write Outlast("sqlite:///jobs.db")'
        )
    return {
        "url": app.url,
        "settings": app.settings.dump(),
        "queues": engine.queues,
        "unused": [queue for queue in engine.queues if queue not in app.registry.queues()],
        "types": engine.types,
        "concurrency": engine.concurrency,
        "version": outlast.__version__,
        "listens": has_sinks(),
    }


def _hear_signals() -> None:
    """A process that a handler forks has no supervisor, and whoever forked it may end it."""
    for each in GROUP_SIGNALS:
        if signal.getsignal(each) is _leave_it_to_the_supervisor:
            signal.signal(each, signal.SIG_DFL)


def _leave_it_to_the_supervisor(*_: object) -> None:
    """A signal to the whole group reaches us too; the supervisor tells us what to do about it."""


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
