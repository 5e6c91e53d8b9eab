"""`python -m bench outages`: PostgreSQL is killed under load, and workers lose their network."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.chaos.outage import Survived, outages

from bench.pg import network
from bench.progress import tell
from bench.report import table

MAX_PAUSE_S = 2.0
"""Seconds after the server answers within which the next job must end."""


def main(words: Sequence[str]) -> int:
    """Return 0 if no job was lost, no worker died and every pause was short; else 1."""
    asked = _parser().parse_args(words)
    is_well = _kill(asked) if asked.kills else True
    found = network.measure()
    print("\n".join(table(network.rows(found))))
    return 0 if is_well and all(after.is_clean for _, after in found) else 1


def _kill(asked: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as name:
        after = outages(
            Path(name), jobs=asked.jobs, workers=asked.workers, kills=asked.kills, tell=tell
        )
    tell()
    print("\n".join(table(_figures(after, asked))))
    for casualty in after.casualties:
        print(casualty)
    return _is_well(after)


def _figures(after: Survived, asked: argparse.Namespace) -> list[list[str]]:
    return [
        ["", "", "asked"],
        ["jobs, acknowledged", f"{len(after.acknowledged):,}", f"at least {asked.jobs:,}"],
        ["outages", f"{len(after.pauses)}", f"{asked.kills}"],
        ["lost", f"{len(after.lost)}", "0"],
        ["not ended", f"{after.unfinished}", "0"],
        ["workers that died or lost a child", f"{len(after.casualties)}", "0"],
        ["violations that verify finds", f"{len(after.violations)}", "0"],
        [
            "from the first answer to the next job's end, most",
            f"{max(after.pauses):.2f} s",
            "under 2 s",
        ],
        ["the same, median", f"{median(after.pauses):.2f} s", ""],
        ["handlers called again", f"{after.repeats}", ""],
    ]


def _is_well(after: Survived) -> bool:
    bad = (after.lost, after.unfinished, after.casualties, after.violations)
    return not any(bad) and max(after.pauses) < MAX_PAUSE_S


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench outages", description=__doc__)
    add = parser.add_argument
    add("--jobs", type=int, default=10_000, help="how many are run (10000)")
    add("--workers", type=int, default=4, help="how many `outlast worker` (4)")
    add("--kills", type=int, default=20, help="how often the database is killed (20)")
    return parser
