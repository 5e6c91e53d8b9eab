"""The figures as plain tables for a terminal, and as the page docs/benchmarks.md."""

from collections.abc import Iterator, Sequence
from typing import Any

from bench.figures import Series
from bench.pg import recorded
from bench.pg.rows import Row, lost
from bench.pg.sides import MODULES, OURS, PEERS
from bench.report import spread, table

TITLES = {
    "drain": "Running jobs",
    "one": "Enqueueing, one by one",
    "bulk": "Enqueueing, many at a time",
    "latency": "Pick-up",
    "idle": "An idle worker",
    "backlog": "A long queue",
    "finished": "A long history",
    "churn": "Churn without vacuum",
    "held": "Churn while another session keeps a transaction open",
    "growth": "Claim and finish by the store's own operations",
}
METHOD = """\
Every system runs on the same PostgreSQL server in the same run. Rounds alternate between the
systems, each on a fresh database. A cell is the median of the rounds, with the minimum and maximum
in brackets. A ratio is computed within a round; the cell is the median of these ratios. A shared
machine can be twice as slow in one minute as in the next: **trust the ratio, not the figure**. A
ratio above one means that Outlast is better, also where a lower figure is better.

- The server flushes every commit (`fsync` and `synchronous_commit` are on) and shares the machine
  with its clients.
- A job only records the time. `outlast` is the embedded worker in one process on uvloop, like the
  peers; `outlast worker` is the command with its supervisor, its child process and the standard
  event loop.
- *Drain*: from the start of the first handler until every job in the store is finished. Jobs are
  enqueued beforehand; `VACUUM (ANALYZE)` and `CHECKPOINT` run before the clock starts.
- *Pick-up*: from the enqueue call in one process to the start of the handler in another, idle
  process; one job every 25 ms.
- *A long queue*: the first jobs of a queue with only those jobs, and of one with many more.
- *Kept*: a system's rate under the named load, divided by its own rate without it.
- *Idle*: after a few jobs. Memory is the proportional share (PSS) of all processes; statements are
  counted in the server's log.
- pgqueuer claims 500 jobs at a time, its best setting here; its default of 10 is about five times
  slower. procrastinate runs 30 at a time and gets a tenth of the jobs, because a measurement would
  otherwise take an hour; its rate is the same.
- The systems do not promise the same. Outlast keeps every job, run and end; pgqueuer keeps a log
  line per state, procrastinate the job. Only Outlast fences: a worker that lost its lease cannot
  write a result.
"""


def header(machine: dict[str, Any]) -> str:
    """One line on what the figures were taken on."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return (
        f"PostgreSQL {machine['postgresql']}, Python {machine['python']}, {versions}; "
        f"{machine['cores']} cores, flush {machine['flush, us']} us, load {machine['load before']}"
    )


def plain(rows: Sequence[Row]) -> list[str]:
    return table(_with_head(rows))


def page(found: dict[str, Any]) -> str:
    """The whole page; the same figures always give the same text."""
    return "\n".join([*_lines(found), ""])


def _lines(found: dict[str, Any]) -> Iterator[str]:
    machine = found["machine"]
    everything = [Row.from_dict(each) for rows in found["rows"].values() for each in rows]
    yield "# Benchmarks"
    yield ""
    yield "Outlast on PostgreSQL, with pgqueuer and procrastinate. This page is the output of"
    yield f'`make bench ARGS="postgres --markdown docs/benchmarks.md"` on {machine["date"]}:'
    yield ""
    yield from _facts(machine)
    for what, rows in found["rows"].items():
        yield from ["", f"## {TITLES[what]}", ""]
        yield from _grid(_with_head([Row.from_dict(each) for each in rows]))
    yield from ["", "## Where peers are better", "", *_losses(everything)]
    yield from ["", "## How it was measured", "", METHOD.rstrip()]
    yield from ["", "## Further peers, measured earlier", ""]
    yield f"Jobs per second, {recorded.DATE}, {recorded.WHERE}."
    yield "The peers ran one after the other, not in the same run as Outlast. Differences under a"
    yield "third mean nothing, and figures of different stores are not comparable."
    yield ""
    yield from _grid([list(recorded.HEAD), *map(list, recorded.FIGURES)])


def _facts(machine: dict[str, Any]) -> Iterator[str]:
    own = {"PostgreSQL": machine["postgresql"], "Python": machine["python"], **machine["versions"]}
    yield f"- {', '.join(f'{name} {number}' for name, number in own.items())}"
    yield f"- {machine['cores']} cores in all; a flush takes {machine['flush, us']} us"
    loads = f"{machine['load before']} before, {machine['load afterwards']} afterwards"
    yield f"- load {loads}; rounds: {machine['rounds']}"


def _losses(rows: Sequence[Row]) -> Iterator[str]:
    found = list(lost(rows))
    for row, peer, ratio in found:
        theirs, ours = row.series(peer), row.series(OURS)
        assert theirs is not None
        assert ours is not None
        figures = f"{_middle(theirs, row)} against our {_middle(ours, row)} {row.unit}"
        yield f"- {row.label}: {peer} has {figures} ({1 / ratio.middle:.2f}x)"
    if not found:
        yield "None in this run."


def _with_head(rows: Sequence[Row]) -> list[list[str]]:
    sides = [side for side in MODULES if any(row.values.get(side) for row in rows)]
    return [_head(sides), *(_cells(row, sides) for row in rows)]


def _grid(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    first, *rest = rows
    yield f"| {' | '.join(first)} |"
    yield f"|{' --- |' * len(first)}"
    for row in rest:
        yield f"| {' | '.join(row)} |"


def _head(sides: Sequence[str]) -> list[str]:
    compared = [peer for peer in PEERS if peer in sides and OURS in sides]
    return ["", "", *sides, *(f"{OURS} / {peer}" for peer in compared), "asked"]


def _cells(row: Row, sides: Sequence[str]) -> list[str]:
    compared = [peer for peer in PEERS if peer in sides and OURS in sides]
    figures = [_spread(row.series(side), row.digits) for side in sides]
    ratios = [_spread(row.ratio(peer), 2, "x") for peer in compared]
    return [row.label, row.unit, *figures, *ratios, row.asked]


def _spread(series: Series | None, digits: int, unit: str = "") -> str:
    if series is None:
        return "-"
    if len(series.values) == 1:
        return f"{series.middle:,.{digits}f}{unit}"
    return f"{spread(series, digits)}{unit}"


def _middle(series: Series, row: Row) -> str:
    return f"{series.middle:,.{row.digits}f}"
