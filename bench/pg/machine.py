"""Description of the machine that runs the bench."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from bench.machine import flush
from bench.pg.ground import Ground

PACKAGES = ("outlast", "asyncpg", "psycopg", "uvloop", "pydantic", "pgqueuer", "procrastinate")


def describe(ground: Ground) -> dict[str, Any]:
    """Return versions, cores, the date and the current load."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "postgresql": ground.server.execute("SHOW server_version"),
        "cores": os.cpu_count(),
        "flush, us": round(flush(ground.folder) * 1e6),
        "rounds": ground.rounds,
        "load before": load(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def load() -> float:
    return round(os.getloadavg()[0], 2)


def _version(name: str) -> str:
    if name == "outlast":
        from outlast import __version__  # noqa: PLC0415 - not always installed as a package

        return __version__
    return version(name)
