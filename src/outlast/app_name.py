"""The default name of an app: the module that creates it."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

from outlast.core.limits import check_name

UNKNOWN: Final = "unknown"


def app_name(given: str | None, creator: FrameType | None) -> str:
    """Return the given name, or that of the module whose code runs in the frame `creator`.

    A script that was started has the name under which others import it.
    """
    if given is not None:
        return check_name(given, what="name")
    module: dict[str, Any] = {} if creator is None else creator.f_globals
    name = module.get("__name__", UNKNOWN)
    if name != "__main__":
        return str(name)
    spec, file = module.get("__spec__"), module.get("__file__")
    return str(spec.name) if spec else Path(file).stem if file else UNKNOWN


def calling_frame() -> FrameType | None:
    """Return the frame that called the caller of this function."""
    return sys._getframe(2)  # noqa: SLF001 - the documented way to find the caller


def place_of(frame: FrameType | None) -> str:
    """Return where the code of a frame is, for messages: `billing, line 12`."""
    return UNKNOWN if frame is None else f"{frame.f_globals.get('__name__')}, line {frame.f_lineno}"
