"""`python -m bench`: run measurements and print their figures."""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import (
    chaos,
    commands,
    groups,
    growth,
    hotpath,
    machine,
    order,
    refusals,
    report,
    rounds,
    schedules,
    worker,
)
from bench.figures import Line, Series

JOBS = {
    "drain": 20_000,
    "one": 3_000,
    "bulk": 20_000,
    "latency": 400,
    "growth": 10_000,
    "groups": 10_000,
    "worker": 20_000,
    "order": 20_000,
    "commands": 1,
    "schedules": 1_000,
    "chaos": 10_000,
    "hotpath": 100_000,
    "refusals": 1,
}
"""How many jobs each measurement takes unless told otherwise."""

ELSEWHERE = {
    "postgres": "bench.pg.main",
    "outages": "bench.pg.outages",
    "keyvalue": "bench.keyvalue",
    "takeover": "bench.takeover",
    "due": "bench.due",
    "intervals": "bench.intervals",
    "start": "bench.start",
    "producers": "bench.producers",
    "baseline": "bench.baseline.pairs",
    "transactions": "bench.transactions",
    "transfer": "bench.transfer",
    "space": "bench.space",
    "labels": "bench.labels",
    "logs": "bench.logs",
}
"""Measured with words of their own: `python -m bench postgres --help`."""

ALONE = {
    *("growth", "groups", "worker", "order", "commands", "schedules", "chaos", "hotpath"),
    "refusals",
}
"""Measured without a peer."""


def main(words: Sequence[str] | None = None) -> int:
    """Take the figures asked for; 2 if Huey is wanted and missing."""
    words = sys.argv[1:] if words is None else words
    sys.path.append(
        str(Path(__file__).parent.parent / "tests")
    )  # what measurements share with them
    if words and words[0] in ELSEWHERE:
        return int(import_module(ELSEWHERE[words[0]]).main(words[1:]))
    asked = _parser().parse_args(words)
    if asked.huey and machine.huey_version() is None:
        print("huey is not installed: `make bench` does that, or say --no-huey", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="outlast-bench-", dir=asked.dir) as name:
        found = _measure(asked, Path(name))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    wanted = tuple(what for what in JOBS if what != "chaos")  # which proves, and takes minutes
    if asked.what != "all":
        wanted = (asked.what,)
    found: dict[str, Any] = {
        "machine": machine.describe(folder),
        "pragmas": rounds.settings(folder, huey=asked.huey),
    }
    _print(report.header(found["machine"], found["pragmas"]))
    beside = [what for what in wanted if what not in ALONE]
    if beside:
        found["compared"] = _compare(asked, folder, beside)
    if "growth" in wanted:
        found["growth"] = _grow(asked, folder)
    if "groups" in wanted:
        jobs = asked.jobs or JOBS["groups"]
        found["groups"] = groups.measure(folder, jobs=jobs, rounds=asked.rounds)
        _print(groups.lines(found["groups"]))
    if "worker" in wanted:
        jobs = asked.jobs or JOBS["worker"]
        found["worker"] = worker.measure(folder, jobs=jobs, picks=300, rounds=asked.rounds)
        _print(found["worker"])
    if "order" in wanted:
        found["order"] = _order(asked, folder)
    if "commands" in wanted:
        found["commands"] = commands.measure(folder, rows=asked.rows)
        _print(commands.lines(found["commands"]))
    if "schedules" in wanted:
        found["schedules"] = _schedule(asked, folder)
    found |= _rest(asked, folder, wanted)
    found["afterwards"] = machine.load_and_flush(folder)
    _print([report.load_and_flush("afterwards", found["afterwards"])])
    return found


def _rest(asked: argparse.Namespace, folder: Path, wanted: Sequence[str]) -> dict[str, Any]:
    """Run the measurements that need no comparison: chaos, hot path and refusals."""
    found: dict[str, Any] = {}
    if "chaos" in wanted:
        found["chaos"] = chaos.measure(folder, jobs=asked.jobs or JOBS["chaos"])
        _print(report.table([[name, str(value)] for name, value in found["chaos"].items()]))
    if "hotpath" in wanted:
        found["hotpath"] = hotpath.measure(jobs=asked.jobs or JOBS["hotpath"], rounds=asked.rounds)
        _print(hotpath.lines(found["hotpath"]))
    if "refusals" in wanted:
        found["refusals"] = refusals.measure(rounds=asked.rounds)
        _print(refusals.lines(found["refusals"]))
    return found


def _compare(asked: argparse.Namespace, folder: Path, beside: Sequence[str]) -> dict[str, Any]:
    lines: list[Line] = []
    for what in beside:
        jobs = asked.jobs or JOBS[what]
        lines += rounds.lines(what, folder, jobs=jobs, rounds=asked.rounds, huey=asked.huey)
    _print(report.comparison(lines))
    return {line.figure.label: line.as_dict() for line in lines}


def _grow(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    sizes = growth.sizes(asked.rows)
    jobs = asked.jobs or JOBS["growth"]
    rates = asyncio.run(growth.measure(folder, sizes, jobs=jobs, rounds=asked.rounds))
    names = [size.name for size in sizes]
    _print(report.growth(names, [Series(rate) for rate in rates]))
    return dict(zip(names, rates, strict=True))


def _schedule(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    found = schedules.measure(folder, jobs=asked.jobs or JOBS["schedules"])
    _print(schedules.lines(found))
    return found


def _order(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    rows, jobs = min(asked.rows, order.MOST), asked.jobs or JOBS["order"]
    found = order.measure(folder, rows=rows, jobs=jobs, rounds=asked.rounds)
    _print(order.lines(found, rows))
    return found


def _print(lines: Sequence[str]) -> None:
    print("\n".join(lines), end="\n\n", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("what", nargs="?", default="all", choices=[*JOBS, "all"])
    add("--jobs", type=_positive, help="jobs in each measurement, instead of its own number")
    add("--rounds", type=_positive, default=3, help="how often each is measured (3)")
    add("--rows", type=_rows, default=1_000_000, help="the most rows growth has (1000000)")
    add("--huey", action=argparse.BooleanOptionalAction, default=True, help="measure Huey as well")
    add("--json", type=Path, metavar="FILE", help="write every round's figures there")
    add("--dir", type=_folder, default=machine.same_disk(), help="where the files go meanwhile")
    return parser


def _folder(text: str) -> Path:
    folder = Path(text).resolve()
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"{folder} is not a folder; make it, or choose another")
    return folder


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too few; give 1 or more")
    return value


def _rows(text: str) -> int:
    value = int(text)
    if value < growth.FEWEST:
        raise argparse.ArgumentTypeError(f"{value} is too few; give {growth.FEWEST:,} or more")
    return value


if __name__ == "__main__":
    sys.exit(main())
