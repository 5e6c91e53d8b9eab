"""`outlast logs`: print and follow the output of a job."""

import asyncio
from codecs import getincrementaldecoder
from collections import defaultdict
from io import IncrementalNewlineDecoder
from pathlib import Path
from typing import Final

import click

from outlast.cli.command import CommandContext, command
from outlast.cli.json_values import stored_json
from outlast.cli.output import count
from outlast.cli.show import find
from outlast.core.ids import JobId
from outlast.core.printable import INDENT, printable, printable_lines
from outlast.core.progress import describe_progress
from outlast.core.run import RunRecord
from outlast.core.run_log import LogLine
from outlast.errors import InvalidArgument
from outlast.jobs.run_logs import log_lines

POLL_INTERVAL_S: Final = 0.2
"""Seconds between two reads of `--follow`."""

BLOCK_BYTES: Final = 64 * 1024
"""How much of a log file is read at a time."""


@command("logs")
@click.argument("job_id")
@click.option("-f", "--follow", is_flag=True, help="Print new output until the job has ended.")
@click.option("--run", type=click.IntRange(min=1), help="Only the run with this token.")
@click.option("--raw", is_flag=True, help="Print lines as they are, with escape sequences.")
async def job_logs_command(
    ctx: CommandContext, /, job_id: str, follow: bool, run: int | None, raw: bool
) -> None:
    r"""Print what the runs of a job logged, their progress and the job's events.

    These are the records of `logging` that handlers made, and the output of commands. Control
    characters are printed as escapes such as \x1b, because they could control the terminal. With
    --raw progress and events go to stderr.
    """
    job = await find(ctx, job_id)
    if run is not None and run > job.token and not follow:
        raise InvalidArgument(
            f"job {job.id} has no run {run}; `outlast show {job.id}` lists its runs by token"
        )
    follower = JobLogFollower(ctx, job.id, run=run, raw=raw)
    await follower.print_new()
    while follow and not (await ctx.app.get(job.id)).is_final:
        await asyncio.sleep(POLL_INTERVAL_S)
        await follower.print_new()
    await follower.print_new()


class JobLogFollower:
    """Prints the output of a job that is new since the last call."""

    def __init__(
        self, ctx: CommandContext, job_id: JobId, *, run: int | None = None, raw: bool = False
    ) -> None:
        self._ctx = ctx
        self._job_id = job_id
        self._run = run
        self._raw = raw and not ctx.out.as_json
        self._seen = (0, 0)
        self._shown = 1
        self._decoders: defaultdict[str, IncrementalNewlineDecoder] = defaultdict(_new_decoder)
        self._read: dict[str, int] = {}
        self._refused: set[str] = set()
        self._events = 0
        self._progress: str | None = None

    async def print_new(self) -> None:
        """Print new log output, progress and events."""
        async for line in log_lines(
            self._ctx.app.store, self._job_id, run=self._run, after=self._seen
        ):
            self._print_captured(line)
        runs = [run for run in await self._ctx.app.runs(self._job_id) if self._wants(run.token)]
        for run in runs:
            self._print_file(run)
        if runs and runs[-1].progress != self._progress:
            self._progress = runs[-1].progress
            if self._progress is not None:
                self._print_progress(runs[-1].run_id, self._progress)
        events = await self._ctx.app.events(self._job_id)
        for event in events[self._events :]:
            if self._wants(event.token):
                text = f"{event.at:%T} {event.kind} {event.reason or ''}".rstrip()
                self._print_line(text, event)
        self._events = len(events)

    def _wants(self, token: int) -> bool:
        return self._run in (None, token)

    def _print_captured(self, line: LogLine) -> None:
        self._seen = line.token, line.number
        if self._ctx.out.as_json:
            self._ctx.out.record(line)
            return
        self._print_heading(line.token)
        if line.omitted:
            self._print_line(f"… {count(line.omitted, 'line')} left out", None)
        if self._raw:
            self._print_block(f"{line.text}\n".encode(errors="backslashreplace"))
            return
        text = f"{line.at:%T.%f}"[:-3] + f" {line.level} {line.logger}: {line.text}"
        click.echo(printable_lines(text).replace("\n", f"\n{INDENT}"))

    def _print_heading(self, token: int) -> None:
        """Print which run follows; nothing for the first run."""
        if token != self._shown:
            self._shown = token
            self._print_line(f"run {token}", None)

    def _print_block(self, block: bytes) -> None:
        """Print text of a job as it is, for `--raw` alone."""
        click.echo(block, nl=False)

    def _print_progress(self, run_id: str, progress: str) -> None:
        value = {"run_id": run_id, "progress": stored_json(progress)}
        self._print_line(f"progress {describe_progress(progress)}", value)

    def _print_line(self, text: str, value: object) -> None:
        """Print progress or an event; with `--raw` stdout has only what the job printed."""
        out = self._ctx.out
        if out.as_json:
            out.record(value)
        elif self._raw:
            out.message(text)
        else:
            out.line(text)

    def _print_file(self, run: RunRecord) -> None:
        path = None if run.log_path is None else self._log_file(run.log_path)
        if run.log_path is None or path is None:
            return
        with path.open("rb") as file:
            file.seek(self._read.get(run.log_path, 0))
            while block := file.read(BLOCK_BYTES):
                self._print(block, run)
            self._read[run.log_path] = file.tell()

    def _log_file(self, stored: str) -> Path | None:
        """Return the log file; None if it is gone, or lies elsewhere: a store may name any file."""
        folder, path = self._ctx.app.settings.logs.resolve(), Path(stored).resolve()
        if not path.is_file():
            return None
        if path.is_relative_to(folder):
            return path
        if stored not in self._refused:
            self._refused.add(stored)
            self._ctx.out.message(
                f"{printable(stored)} is not shown, because it is not below {folder}; run this in "
                "the folder of the worker, or give the app the same logs= folder"
            )
        return None

    def _print(self, block: bytes, run: RunRecord) -> None:
        if not self._ctx.out.as_json:
            self._print_heading(run.token)
        if self._raw:
            self._print_block(block)
            return
        text = self._decoders[run.run_id].decode(block)
        if self._ctx.out.as_json:
            self._ctx.out.record({"run_id": run.run_id, "log": text})
        else:
            click.echo(printable_lines(text), nl=False)


def _new_decoder() -> IncrementalNewlineDecoder:
    """Return a decoder for blocks that may end within a character, with all line breaks alike."""
    utf8 = getincrementaldecoder("utf-8")(errors="backslashreplace")
    return IncrementalNewlineDecoder(utf8, translate=True)
