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
from outlast.cli.show import find
from outlast.core.envelope import readable
from outlast.core.ids import JobId
from outlast.core.printable import printable, printable_lines
from outlast.core.progress import describe_progress
from outlast.core.run import RunRecord

POLL_INTERVAL_S: Final = 0.2
"""Seconds between two reads of `--follow`."""

BLOCK_BYTES: Final = 64 * 1024
"""How much of a log file is read at a time."""


@command("logs")
@click.argument("job_id")
@click.option("-f", "--follow", is_flag=True, help="Print new output until the job has ended.")
@click.option("--raw", is_flag=True, help="Print log files byte by byte, with escape sequences.")
async def job_logs_command(ctx: CommandContext, /, job_id: str, follow: bool, raw: bool) -> None:
    r"""Print the log files of a job's runs, its progress and its events.

    Only jobs that run a command have log files. Every job has events. Control characters in a log
    file are printed as escapes such as \x1b, because they could control the terminal. With --raw
    progress and events go to stderr.
    """
    job = await find(ctx, job_id)
    follower = JobLogFollower(ctx, job.id, raw=raw)
    await follower.print_new()
    while follow and not (await ctx.app.get(job.id)).is_final:
        await asyncio.sleep(POLL_INTERVAL_S)
        await follower.print_new()
    await follower.print_new()


class JobLogFollower:
    """Prints the output of a job that is new since the last call."""

    def __init__(self, ctx: CommandContext, job_id: JobId, *, raw: bool = False) -> None:
        self._ctx = ctx
        self._job_id = job_id
        self._raw = raw and not ctx.out.as_json
        self._decoders: defaultdict[str, IncrementalNewlineDecoder] = defaultdict(_new_decoder)
        self._read: dict[str, int] = {}
        self._refused: set[str] = set()
        self._events = 0
        self._progress: str | None = None

    async def print_new(self) -> None:
        """Print new log output, progress and events."""
        runs = await self._ctx.app.runs(self._job_id)
        for run in runs:
            self._print_file(run)
        if runs and runs[-1].progress != self._progress:
            self._progress = runs[-1].progress
            if self._progress is not None:
                self._print_progress(runs[-1].run_id, self._progress)
        events = await self._ctx.app.events(self._job_id)
        for event in events[self._events :]:
            why = readable(event.reason) or ""
            self._print_line(f"{event.at:%T} {event.kind} {why}".rstrip(), event)
        self._events = len(events)

    def _print_progress(self, run_id: str, progress: str) -> None:
        value = {"run_id": run_id, "progress": stored_json(progress)}
        self._print_line(f"progress {describe_progress(progress)}", value)

    def _print_line(self, text: str, value: object) -> None:
        """Print progress or an event; with `--raw` stdout has only the bytes of the log files."""
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
        if self._raw:
            click.echo(block, nl=False)
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
