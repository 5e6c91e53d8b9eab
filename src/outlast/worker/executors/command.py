"""The command executor: runs the handler's command line and records output, status and files."""

import asyncio
import logging
import os
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
from outlast.worker.command_logs import log_path
from outlast.worker.executors.guarded_process import GuardedProcess, ProcessExit, kill_all
from outlast.worker.executors.thread import ThreadExecutor
from outlast.worker.run_outcome import ActiveRun, ProcessDied

log = logging.getLogger("outlast.worker")

LOG_LIMIT_BYTES: Final = 10 * 1024 * 1024
"""Bytes of output kept per run."""


ExecutorChanged = Callable[[Lease, str], None]
"""Called when the code of a run continues in another executor: first a thread, then a command."""


class CommandExecutor:
    """Runs a command in its own session, and kills its process group when it must stop."""

    stops: Final = STOPS["command"]

    def __init__(
        self,
        threads: ThreadExecutor,
        logs: Path,
        on_executor_changed: ExecutorChanged,
        *,
        limit: int = LOG_LIMIT_BYTES,
    ) -> None:
        self._threads = threads
        self._logs = logs
        self._on_executor_changed = on_executor_changed
        self._limit = limit
        self._running: set[GuardedProcess] = set()

    async def call(self, active: ActiveRun, params: dict[str, Any]) -> object:
        """Call the handler in a thread, then run the command it returned."""
        command = await self._threads.call(active, params)
        if not isinstance(command, Command):
            return _require_outcome(active, command)
        self._on_executor_changed(active.claim.lease, "command")
        path = await asyncio.to_thread(log_path, self._logs, active.claim)
        if active.interrupted is not None:
            raise StopRequested(f"run {active.run.id} was asked to stop before its command started")
        end = await self._run(active, command, path)
        active.exit_code = end.status
        await asyncio.to_thread(_attach, active, command)
        _judge(active, command, end)
        return None

    async def close(self) -> None:
        """Kill all running commands and wait for their end."""
        await kill_all(self._running)

    def close_now(self) -> None:
        """Kill all running commands without an event loop."""
        for process in tuple(self._running):
            process.kill_and_wait()

    async def _run(self, active: ActiveRun, command: Command, path: Path) -> ProcessExit:
        env = command.environment(os.environ) | _job_environment(active.claim)
        process = GuardedProcess(
            command.argv, cwd=command.cwd, env=env, log=path, limit=self._limit
        )
        self._running.add(process)
        process.ended.add_done_callback(lambda _: self._running.discard(process))
        active.log_path = _storable(path)
        active.stop = process.terminate
        try:
            return await asyncio.shield(process.ended)
        except asyncio.CancelledError:
            process.kill()
            raise


def _require_outcome(active: ActiveRun, value: object) -> object:
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
        raise ProcessDied("the guardian of the command was killed, and the command with it")
    if end.status not in command.ok:
        output = f"; its last output:\n{end.tail}" if end.tail.strip() else "; it printed nothing"
        raise CommandFailed(f"the command {end}{output}", exit_code=end.status)


def _job_environment(claim: Claim) -> dict[str, str]:
    return {
        "OUTLAST_JOB_ID": claim.job_id,
        "OUTLAST_RUN_ID": claim.run_id,
        "OUTLAST_TOKEN": str(claim.token),
    }


def _attach(active: ActiveRun, command: Command) -> None:
    """Record each matching file. A file that cannot be recorded does not fail the run."""
    for found in _files(command):
        try:
            active.run.attach(found)
        except RunError as error:
            log.warning("artifact left out run=%s: %s", active.run.id, error)


def _files(command: Command) -> Iterable[str]:
    folder = Path(command.cwd or os.curdir).absolute()
    for pattern in command.artifacts:
        names = glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 - patterns may be absolute
        yield from (str(folder / name) for name in sorted(names) if (folder / name).is_file())


def _storable(path: Path) -> str | None:
    text = str(path)
    return text if len(text) <= MAX_PATH and is_storable(text) else None
