"""The event loop of a worker's child processes: uvloop if it is installed."""

import asyncio
import sys
from collections.abc import Callable
from importlib import import_module
from typing import cast

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def loop_factory(*, uvloop: bool) -> LoopFactory | None:
    """Return what creates the event loop; None stands for asyncio's own.

    With `uvloop` False, on Windows, or without the package it is asyncio's own.
    """
    if not uvloop or sys.platform == "win32":
        return None
    try:
        package = import_module("uvloop")
    except ImportError:
        return None
    return cast("LoopFactory", package.new_event_loop)
