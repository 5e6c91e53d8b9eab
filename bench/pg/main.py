"""`python -m bench postgres`: measure on a temporary server, print, and write the page."""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.growth import FEWEST
from bench.pg import growth, idle, machine, size, speed, tables
from bench.pg.ground import Ground
from bench.pg.rows import Row
from bench.pg.sides import MODULES, PEERS, TREE
from outlast.testing.servers.postgres import NEWEST, postgres_server
from outlast.testing.servers.postgres_binaries import VERSIONS

SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB", "checkpoint_timeout": "15min"}
"""Server settings: flushing is on, and no checkpoint falls into a round by chance."""

Measurement = Callable[[Ground, argparse.Namespace], list[Row]]
MEASUREMENTS: dict[str, Measurement] = {
    "drain": lambda ground, asked: speed.drain(ground, _drained(asked)),
    "one": lambda ground, asked: speed.one(_once(ground), asked.jobs or 2_000),
    "bulk": lambda ground, asked: speed.bulk(_once(ground), _drained(asked)),
    "latency": lambda ground, asked: speed.latency(ground, asked.jobs or 300),
    "idle": lambda ground, asked: idle.idle(ground, asked.seconds),
    "backlog": lambda ground, asked: size.backlog(_once(ground), asked.jobs or 20_000, asked.rows),
    "finished": lambda ground, asked: size.finished(
        _once(ground), asked.jobs or 20_000, asked.rows
    ),
    "growth": lambda ground, asked: growth.growth(ground, max(FEWEST, asked.rows)),
    "churn": lambda ground, asked: size.churn(_once(ground), _churned(asked), held=False),
    "held": lambda ground, asked: size.churn(_once(ground), _churned(asked), held=True),
}


def main(words: Sequence[str]) -> int:
    """Run the measurements; return 2 if a peer is not installed."""
    asked = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # with all that was started
    if asked.reuse is not None:
        found = json.loads(asked.reuse.read_text(encoding="utf-8"))
    else:
        missing = [name for name in (*PEERS, "uvloop") if find_spec(name) is None]
        if missing:
            told = f"{', '.join(missing)} not installed: `make bench` does that"
            print(told, file=sys.stderr)
            return 2
        found = _measure(asked)
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if asked.markdown is not None:
        asked.markdown.write_text(tables.page(found), encoding="utf-8")
    return 0


def _measure(asked: argparse.Namespace) -> dict[str, Any]:
    wanted = list(MEASUREMENTS) if "all" in asked.what else asked.what
    with (
        tempfile.TemporaryDirectory(prefix="outlast-bench-") as name,
        postgres_server(asked.version, durable=True, settings=SETTINGS) as server,
    ):
        ground = Ground(server=server, folder=Path(name), sides=asked.sides, rounds=asked.rounds)
        found: dict[str, Any] = {"machine": machine.describe(ground), "rows": {}}
        print(tables.header(found["machine"]), flush=True)
        for what in wanted:
            rows = MEASUREMENTS[what](ground, asked)
            found["rows"][what] = [row.as_dict() for row in rows]
            print("\n".join(["", *tables.plain(rows)]), flush=True)
        found["machine"]["load afterwards"] = machine.load()
    return found


def _drained(asked: argparse.Namespace) -> int:
    return asked.jobs or 20_000


def _once(ground: Ground) -> Ground:
    """Leave out the command, which enqueues like the embedded worker."""
    return replace(ground, sides=[side for side in ground.sides if side != TREE])


def _churned(asked: argparse.Namespace) -> int:
    """Three tenths of the rows asked for: 300,000 of a million."""
    return max(size.STEPS, asked.rows * 3 // 10)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench postgres", description=__doc__)
    add = parser.add_argument
    add("what", nargs="*", default="all", choices=[*MEASUREMENTS, "all"])
    add("--jobs", type=_positive, help="jobs in each measurement, instead of its own number")
    add("--rows", type=_positive, default=1_000_000, help="the most rows there are (1000000)")
    add("--rounds", type=_positive, default=3, help="how often each is measured (3)")
    add("--seconds", type=float, default=30.0, help="how long idling is watched (30)")
    add("--sides", type=_sides, default=list(MODULES), help=f"which of {', '.join(MODULES)}")
    add("--version", choices=VERSIONS, default=NEWEST, help=f"of PostgreSQL ({NEWEST})")
    add("--json", type=Path, metavar="FILE", help="write every round's figures there")
    add("--markdown", type=Path, metavar="FILE", help="write the page docs/benchmarks.md there")
    add("--reuse", type=Path, metavar="FILE", help="measure nothing: figures that --json wrote")
    return parser


def _sides(text: str) -> list[str]:
    sides = text.split(",")
    for side in sides:
        if side not in MODULES:
            raise argparse.ArgumentTypeError(f"{side!r} is none of {', '.join(MODULES)}")
    return sides


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too few; give 1 or more")
    return value
