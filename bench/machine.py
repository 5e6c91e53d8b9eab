"""Description of the machine that runs the bench."""

import os
import platform
import sqlite3
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench.child import ROOT

FLUSHES = 200
PAGE = bytes(8192)
_flush = getattr(os, "fdatasync", os.fsync)  # macOS has only the one


def describe(folder: Path) -> dict[str, Any]:
    """Versions and cores, and how the machine feels just now."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "pydantic": version("pydantic"),
        "huey": huey_version(),
        "cores": os.cpu_count(),
        **mood(folder),
    }


def mood(folder: Path) -> dict[str, Any]:
    """What others make of the figures: the load, and what a flush costs in that folder."""
    load, flushed = os.getloadavg()[0], flush(folder)
    return {"load": round(load, 2), "flush_us": round(flushed * 1e6), "folder": str(folder)}


def huey_version() -> str | None:
    """None where it is not installed."""
    try:
        return version("huey")
    except PackageNotFoundError:
        return None


def flush(folder: Path) -> float:
    """The median time to write 8 KiB and have it flushed, in seconds."""
    with tempfile.NamedTemporaryFile(dir=folder, buffering=0) as file:
        return median(_write_one(file.fileno()) for _ in range(FLUSHES))


def same_disk() -> Path:
    """Where to work unless told: the system's temporary folder if the project's disk holds it.

    A temporary folder in memory would make every flush free.
    """
    usual = Path(tempfile.gettempdir())
    return usual if usual.stat().st_dev == ROOT.stat().st_dev else ROOT


def _write_one(file: int) -> float:
    since = perf_counter()
    os.write(file, PAGE)
    _flush(file)
    return perf_counter() - since
