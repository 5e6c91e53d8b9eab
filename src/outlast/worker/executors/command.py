"""Command lines: the handler says what to run, and its output, exit code and files are kept."""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable
from glob import glob
from pathlib import Path
from typing import Any, Final

from outlast.core.command import Command
from outlast.core.limits import MAX_PATH, is_storable
from outlast.core.outcome import HandlerOutcome
from outlast.core.run import Claim, Lease
from outlast.errors import CommandFailed, RunError, StopRequested
from outlast.jobs.executor_choice import STOPS
from outlast.worker.executors.guarded_process import GuardedProcess, ProcessExit, kill_all
from outlast.worker.executors.thread import ThreadExecutor
from outlast.worker.run_outcome import ActiveRun, ProcessDied

log = logging.getLogger("outlast.worker")

LOG_LIMIT_BYTES: Final = 10 * 1024 * 1024
"""How much output of one run is kept, in bytes."""


ExecutorChanged = Callable[[Lease, str], None]
"""Told in which executor the code of a run goes on: a handler that says what to run is a thread."""


class CommandExecutor:
    """Runs a command in a session of its own, and kills the whole of it when it must stop."""

    stops: Final = STOPS["command"]

    def __init__(
        self,
        threads: ThreadExecutor,
        logs: Path,
        moved: ExecutorChanged,
        *,
        limit: int = LOG_LIMIT_BYTES,
    ) -> None:
        self._threads = threads
        self._logs = logs
        self._moved = moved
        self._limit = limit
        self._running: set[GuardedProcess] = set()

    async def call(self, active: ActiveRun, params: dict[str, Any]) -> object:
        command = await self._threads.run(active.handler, params)
        if not isinstance(command, Command):
            return _no_command(active, command)
        self._moved(active.claim.lease, "command")
        path = await asyncio.to_thread(self._log_path, active.claim)
        if active.interrupted is not None:
            raise StopRequested(f"run {active.run.id} was asked to stop before its command started")
        end = await self._run(active, command, path)
        active.exit_code = end.status
        await asyncio.to_thread(_attach, active, command)
        _judge(active, command, end)
        return None

    async def close(self) -> None:
        await kill_all(self._running)

    def close_now(self) -> None:
        for leash in tuple(self._running):
            leash.kill_and_wait()

    def _log_path(self, claim: Claim) -> Path:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self._logs.absolute() / f"{re.sub(r'[^A-Za-z0-9-]', '_', claim.run_id)}.log"

    async def _run(self, active: ActiveRun, command: Command, path: Path) -> ProcessExit:
        env = {**os.environ, **command.env, **_job_environment(active.claim)}
        leash = GuardedProcess(command.argv, cwd=command.cwd, env=env, log=path, limit=self._limit)
        self._running.add(leash)
        leash.ended.add_done_callback(lambda _: self._running.discard(leash))
        active.log_path = _storable(path)
        active.stop = leash.terminate
        try:
            return await asyncio.shield(leash.ended)
        except asyncio.CancelledError:
            leash.kill()
            raise


def _no_command(active: ActiveRun, value: object) -> object:
    if isinstance(value, HandlerOutcome):
        return value
    raise TypeError(
        f'"{active.kind.name}" is a command, but its handler returned {type(value).__name__}; '
        "return a Command"
    )


def _judge(active: ActiveRun, command: Command, end: ProcessExit) -> None:
    if active.interrupted is not None:
        raise StopRequested(f"the command {end} after it was asked to stop")
    if end.error is not None:
        raise CommandFailed(f"the command could not be started: {end.error}", exit_code=127)
    if end.status is None:
        raise ProcessDied("the command's keeper was killed, and the command with it")
    if end.status not in command.ok:
        said = f"; its last output:\n{end.tail}" if end.tail.strip() else "; it printed nothing"
        raise CommandFailed(f"the command {end}{said}", exit_code=end.status)


def _job_environment(claim: Claim) -> dict[str, str]:
    return {
        "OUTLAST_JOB_ID": claim.job_id,
        "OUTLAST_RUN_ID": claim.run_id,
        "OUTLAST_TOKEN": str(claim.token),
    }


def _attach(active: ActiveRun, command: Command) -> None:
    """Record each file that matches; one that cannot be recorded is no reason to fail."""
    for found in _files(command):
        try:
            active.run.attach(found)
        except RunError as error:
            log.warning("artifact left out run=%s: %s", active.run.id, error)


def _files(command: Command) -> Iterable[str]:
    folder = Path(command.cwd or os.curdir).absolute()
    for pattern in command.artifacts:
        names = glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 - also absolute ones
        yield from (str(folder / name) for name in sorted(names) if (folder / name).is_file())


def _storable(path: Path) -> str | None:
    text = str(path)
    return text if len(text) <= MAX_PATH and is_storable(text) else None
