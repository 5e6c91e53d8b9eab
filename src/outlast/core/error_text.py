"""The text of an error that a store keeps: a traceback that begins at the user's frame."""

import os
from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException
from typing import Final

from outlast.core.limits import truncate

_PACKAGE: Final = Path(__file__).parent.parent
_LIBRARY: Final = Path(os.__file__).parent

_INTERNAL: Final = tuple(
    f"{folder}{os.sep}"
    for folder in (
        *(_PACKAGE / name for name in ("worker", "jobs", "testing")),
        *(_LIBRARY / name for name in ("asyncio", "concurrent")),
    )
)
"""Folders of the code that calls a handler."""


def error_text(error: BaseException) -> str:
    """Return the traceback of an error and of its causes, each from the user's first frame on.

    It is cut to the size that a store keeps.
    """
    try:
        found = TracebackException.from_exception(error)
        for each in _with_causes(found):
            each.stack = StackSummary.from_list(user_frames(each.stack))
        return truncate("".join(found.format()))
    except Exception:  # noqa: BLE001 - a faulty exception class must not end the slot
        return f"{type(error).__name__}, which cannot be shown: formatting it raises"


def user_frames(frames: list[FrameSummary]) -> list[FrameSummary]:
    """Return the frames without those of the code that called the handler.

    An error that was raised before the handler was called keeps its frames.
    """
    for number, frame in enumerate(frames):
        if not frame.filename.startswith(_INTERNAL):
            return frames[number:]
    return frames


def _with_causes(error: TracebackException) -> Iterator[TracebackException]:
    found: list[TracebackException | None] = [error]
    while found:
        each = found.pop()
        if each is not None:
            yield each
            found += [each.__cause__, each.__context__, *(each.exceptions or ())]
