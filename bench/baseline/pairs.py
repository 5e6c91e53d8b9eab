"""`python -m bench baseline TREE`: measure another tree of this project and this one in turn."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import machine, report
from bench.child import LIMIT, ROOT
from bench.figures import FIGURES, Series
from bench.pg.rows import Row
from bench.progress import tell

SQLITE = {"drain": 20_000, "one": 3_000, "bulk": 20_000, "latency": 400}
HERE, BASELINE = "this tree", "baseline"
POSTGRES = ("drain", "one", "bulk", "latency")

Found = dict[str, list[dict[str, Any]]]
"""The figures of each tree, one entry per pair."""


def main(words: Sequence[str]) -> int:
    """Measure both trees in alternating order and print the ratio of each figure."""
    asked = _parser().parse_args(words)
    trees = (ROOT, asked.tree.resolve())
    found: Found = {HERE: [], BASELINE: []}
    for number in range(asked.pairs):
        for tree in trees if number % 2 == 0 else trees[::-1]:
            side = HERE if tree == ROOT else BASELINE
            tell(f"pair {number + 1} of {asked.pairs}, {side}")
            found[side].append(_measure(tree, asked))
    tell()
    print("\n".join(_table(found)))
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def package(tree: Path) -> str:
    """Return the name of the package in `src`; the baseline's may differ."""
    return next(folder.parent.name for folder in sorted(tree.glob("src/*/__init__.py")))


def _measure(tree: Path, asked: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="outlast-bench-", dir=machine.same_disk()) as name:
        folder = Path(name)
        found: dict[str, Any] = {"sqlite": _sqlite(tree, folder, asked.scale)}
        if asked.postgres:
            found["postgres"] = _postgres(tree, folder / "figures.json", asked.scale)
        return found


def _sqlite(tree: Path, folder: Path, scale: float) -> dict[str, Any]:
    found = {}
    for what, jobs in SQLITE.items():
        count, file = str(max(1, int(jobs * scale))), str(folder / f"{what}.db")
        if what == "drain":
            _run(tree, "bench.child", package(tree), "bulk", file, count)
        found[what] = json.loads(_run(tree, "bench.child", package(tree), what, file, count))
    return found


def _postgres(tree: Path, file: Path, scale: float) -> list[dict[str, Any]]:
    jobs = [] if scale == 1 else ["--jobs", str(max(1, int(2_000 * scale)))]
    words = [*POSTGRES, "--sides", package(tree), "--rounds", "1", *jobs, "--json", str(file)]
    _run(tree, "bench", "postgres", *words)
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return [row for what in POSTGRES for row in rows[what]]


def _run(tree: Path, *words: str) -> str:
    path = os.pathsep.join((str(tree / "src"), str(tree)))
    done = subprocess.run(
        (sys.executable, "-m", *words),
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(words)} failed in {tree}; see its output above")
    return done.stdout


def _table(found: Found) -> list[str]:
    cells = [["", "", *found, "ratio"]]
    for row in (*_sqlite_rows(found), *_postgres_rows(found)):
        both = [report.spread(Series(values), row.digits) for values in row.values.values()]
        ratio = row.ratio(BASELINE, HERE)
        assert ratio is not None
        cells.append([row.label, row.unit, *both, report.spread(ratio, 2)])
    return report.table(cells)


def _sqlite_rows(found: Found) -> Iterator[Row]:
    for figure in FIGURES:
        yield Row(
            label=f"SQLite, {figure.label}",
            unit=figure.unit,
            digits=figure.digits,
            low_is_good=figure.low_is_good,
            values={
                side: [pair["sqlite"][figure.what][figure.key] for pair in pairs]
                for side, pairs in found.items()
            },
        )


def _postgres_rows(found: Found) -> Iterator[Row]:
    for number, first in enumerate(found[HERE][0].get("postgres", ())):
        values = {
            side: [next(iter(pair["postgres"][number]["values"].values()))[0] for pair in pairs]
            for side, pairs in found.items()
        }
        yield replace(Row(**first), label=f"PostgreSQL, {first['label']}", values=values)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench baseline", description=__doc__)
    add = parser.add_argument
    add("tree", type=Path, help="the checkout to compare with; see bench/baseline/README.md")
    add("--pairs", type=int, default=10, help="how often both trees are measured (10)")
    add("--scale", type=float, default=1.0, help="share of the jobs of each measurement (1)")
    add("--postgres", action="store_true", help="on PostgreSQL as well")
    add("--json", type=Path, metavar="FILE", help="write the figures of every pair there")
    return parser
