"""Reading a traceback that is only text: its process is gone, or far away."""

import re
from typing import Final

from outlast.core.failure import ExceptionInfo, Frame

MOST_FRAMES: Final = 50

_HEAD: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(
    r'^  File "(.*)", line (\d+), in (.*)\n(?:    (?! *[~^]+$)(.*)\n)?', re.MULTILINE
)
_ERROR: Final = re.compile(r"^([A-Za-z_][\w.]*)(?::\s*(.*))?\Z", re.MULTILINE | re.DOTALL)


def read_trace(text: str) -> tuple[ExceptionInfo, ...]:
    """The last exception of the text; none if it is no traceback."""
    *_, last = text.rpartition(_HEAD)
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
            frames=tuple(frames[-MOST_FRAMES:]),
        ),
    )
