"""The text of an error that a store keeps: a traceback that begins at the user's frame."""

import os
from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException
from typing import Final

from outlast.core.error_message import error_message, is_validation_error
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

    It has no inputs of validation errors, and is cut to the size that a store keeps.
    """
    try:
        found = TracebackException.from_exception(error)
        for each, raised in _with_causes(found, error):
            each.stack = StackSummary.from_list(user_frames(each.stack))
            if is_validation_error(raised):
                each._str = error_message(raised)  # type: ignore[attr-defined]  # noqa: SLF001 - it has no other way
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


def _with_causes(
    traceback: TracebackException, error: BaseException
) -> Iterator[tuple[TracebackException, BaseException]]:
    """Yield each traceback of the tree with its exception."""
    found: list[tuple[TracebackException | None, BaseException | None]] = [(traceback, error)]
    while found:
        each, raised = found.pop()
        if each is not None and raised is not None:
            yield each, raised
            found += [(each.__cause__, raised.__cause__), (each.__context__, raised.__context__)]
            if isinstance(raised, BaseExceptionGroup):
                found += zip(each.exceptions or (), raised.exceptions, strict=False)
