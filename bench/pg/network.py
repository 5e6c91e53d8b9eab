"""Workers on PostgreSQL without a network for seconds: living workers must keep their runs."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.chaos.cutoff import CutOff, Outage, cut_off

from bench.progress import tell
from outlast.testing.servers.postgres import PostgresServer, postgres_server
from support.servers.pg_standby import promote, standby_of

WORKERS: Final = 4


@dataclass(frozen=True, slots=True)
class Case:
    """A failure, how long it lasts, and how it is measured in a folder."""

    what: str
    seconds: str
    measure: Callable[[Path], CutOff]


def _cut(folder: Path, outage: Outage) -> CutOff:
    with postgres_server() as server:
        return cut_off(folder, server, workers=WORKERS, outages=[outage])


def _fail_over(folder: Path) -> CutOff:
    with ExitStack() as stack:
        primary = stack.enter_context(postgres_server())
        standby = stack.enter_context(standby_of(primary))

        def move() -> PostgresServer:
            promote(standby, primary)
            return standby

        outages = [Outage(WORKERS, 0)]
        return cut_off(folder, primary, workers=WORKERS, outages=outages, move=move)


CASES: Final = (
    *(
        Case(
            f"no network for {cut} of {WORKERS} workers",
            f"{s} s",
            partial(_cut, outage=Outage(cut, s)),
        )
        for cut, seconds in ((WORKERS, (1, 4, 8)), (1, (1, 4, 8, 12)))
        for s in seconds
    ),
    Case("a standby is promoted", "", _fail_over),
)


def measure() -> list[tuple[Case, CutOff]]:
    """Measure every case, each with workers and a server of its own."""
    found = []
    for case in CASES:
        tell(f"{case.what} {case.seconds}")
        with tempfile.TemporaryDirectory(prefix="outlast-bench-") as name:
            found.append((case, case.measure(Path(name))))
    tell()
    return found


def rows(found: list[tuple[Case, CutOff]]) -> list[list[str]]:
    """Return the figures as a table."""
    head = ["with default settings", "outage", "jobs", "lost", "handlers called", "clean"]
    return [
        head,
        *(
            [
                case.what,
                case.seconds,
                f"{after.jobs}",
                f"{len(after.lost)}",
                f"{after.starts}",
                "yes" if after.is_clean else "no",
            ]
            for case, after in found
        ),
    ]
