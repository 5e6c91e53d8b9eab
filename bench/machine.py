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
    """Return versions, cores, load and flush time."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "pydantic": version("pydantic"),
        "huey": huey_version(),
        "cores": os.cpu_count(),
        **load_and_flush(folder),
    }


def load_and_flush(folder: Path) -> dict[str, Any]:
    """Return the current load and the time of a flush in the folder."""
    load, flushed = os.getloadavg()[0], flush(folder)
    return {"load": round(load, 2), "flush_us": round(flushed * 1e6), "folder": str(folder)}


def huey_version() -> str | None:
    """Return the version of Huey, or None if it is not installed."""
    try:
        return version("huey")
    except PackageNotFoundError:
        return None


def flush(folder: Path) -> float:
    """Return the median time to write and flush 8 KiB, in seconds."""
    with tempfile.NamedTemporaryFile(dir=folder, buffering=0) as file:
        return median(_write_one(file.fileno()) for _ in range(FLUSHES))


def same_disk() -> Path:
    """Return the temporary folder if it is on the disk of the project, else the project folder.

    In a temporary folder in memory a flush costs nothing.
    """
    usual = Path(tempfile.gettempdir())
    return usual if usual.stat().st_dev == ROOT.stat().st_dev else ROOT


def _write_one(file: int) -> float:
    since = perf_counter()
    os.write(file, PAGE)
    _flush(file)
    return perf_counter() - since
