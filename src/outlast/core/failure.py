"""A failed attempt as failure sinks receive it, and the parser of textual tracebacks."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from outlast.core.envelope import label, parse, plain
from outlast.core.ids import JobId, RunId
from outlast.core.state import RunStatus, State

MAX_FRAMES: Final = 50
"""Most frames kept of one traceback, the innermost ones."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback, without the values of its variables."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionInfo:
    """One exception: its class, its message and its frames, the innermost frame last."""

    type: str
    module: str
    message: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed or lost attempt, reported after the store has recorded it.

    Attributes:
        job_id: The job.
        run_id: The run that failed.
        job_type: Name of the job type.
        attempt: Number of the attempt, from 1.
        max_attempts: Attempts the job may use; None is unlimited.
        worker: Instance id of the worker.
        status: How the run ended.
        state: State of the job afterwards; `retry_wait` if it is tried again.
        reason: Reason code of the end, if any.
        retry_in: Time until the next attempt, if there is one.
        payload: Parameters of the job. Every value is `[redacted]` unless its field is shown.
        traceback: The traceback, without the redacted values.
        raised: The exception first, then the members of a group and its causes, without the
            redacted values.
    """

    job_id: JobId
    run_id: RunId
    job_type: str
    attempt: int
    max_attempts: int | None
    worker: str
    status: RunStatus
    state: State
    reason: str | None
    retry_in: timedelta | None
    payload: Mapping[str, Any]
    traceback: str
    raised: tuple[ExceptionInfo, ...]

    @property
    def is_final(self) -> bool:
        """Whether this attempt was the job's last."""
        return self.state in {State.DEAD_LETTER, State.FAILED}

    @property
    def error(self) -> str:
        """Class name of the exception; `lost` or `failed` if none was raised."""
        return self.raised[0].type if self.raised else str(self.status)


Sink = Callable[[Failure], object]
"""Receives failures. It is called in its own thread and may block."""

TRACEBACK_HEAD: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(
    r'^  File "(.*)", line (\d+), in (.*)\n(?:    (?! *[~^]+$)(.*)\n)?', re.MULTILINE
)
_ERROR: Final = re.compile(r"^([A-Za-z_][\w.]*)(?::\s*(.*))?\Z", re.MULTILINE | re.DOTALL)


def format_traceback(raised: Sequence[ExceptionInfo]) -> str:
    """Return a traceback of these exceptions, the outermost one last."""
    return "\n".join(f"{_format_exception(each)}\n" for each in reversed(raised))


def _format_exception(raised: ExceptionInfo) -> str:
    module = "" if raised.module in ("builtins", "__main__") else f"{raised.module}."
    lines = [TRACEBACK_HEAD]
    for frame in raised.frames:
        lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
        lines += [f"    {frame.code}"] * bool(frame.code)
    lines.append(f"{module}{raised.type}" + (f": {raised.message}" if raised.message else ""))
    return "\n".join(lines)


def parse_traceback(text: str) -> tuple[ExceptionInfo, ...]:
    """Parse the last exception of a traceback that is only text.

    Returns:
        One exception with at most MAX_FRAMES frames; empty if the text is no traceback.
    """
    *_, last = text.rpartition(TRACEBACK_HEAD)
    end = 0
    frames = []
    for found in _FRAME.finditer(last):
        frames.append(Frame(found[1], int(found[2]), found[3], (found[4] or "").strip()))
        end = found.end()
    error = _ERROR.search(last[end:].rstrip())
    if error is None or not frames:
        return ()
    module, _, name = error[1].rpartition(".")
    return (
        ExceptionInfo(
            type=name,
            module=module or "builtins",
            message=error[2] or "",
            frames=tuple(frames[-MAX_FRAMES:]),
        ),
    )


_GROUP_ERROR: Final = re.compile(r"^  \| ([A-Za-z_][\w.]*)(?:: (.*))?$", re.MULTILINE)
"""The line of a traceback that names an exception group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredError:
    """A stored error text in parts; `type` and `traceback` are None if nothing was raised."""

    type: str | None  # with its module, unless it is built in
    message: str
    traceback: str | None

    @property
    def summary(self) -> str:
        """Class and message on one line."""
        first = self.message.partition("\n")[0]
        return ": ".join(part for part in (self.type, first) if part)


def split_error(text: str) -> StoredError:
    """Return the parts of the error text of a run; the last exception of a chain names it.

    Of an error in an envelope only its class can be read.
    """
    if (shown := label(text)) is not None:
        return StoredError(type=parse(text).error_type, message=shown, traceback=None)
    text = plain(text, "error")
    if TRACEBACK_HEAD not in text:
        return StoredError(type=None, message=text, traceback=None)
    for raised in parse_traceback(text):
        module = "" if raised.module == "builtins" else f"{raised.module}."
        return StoredError(type=f"{module}{raised.type}", message=raised.message, traceback=text)
    group = _GROUP_ERROR.search(text)
    kind, message = ("", text.strip().splitlines()[-1]) if group is None else group.groups("")
    return StoredError(type=kind or None, message=message, traceback=text)
