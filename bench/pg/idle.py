"""Cost of an idle worker: memory, CPU and statements."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from bench.pg.child import WARM
from bench.pg.ground import Ground
from bench.pg.rows import Row

SETTLE = 3.0
TICKS = os.sysconf("SC_CLK_TCK")
COUNTED = "ALTER DATABASE {} SET log_statement = 'all'"


def idle(ground: Ground, seconds: float) -> list[Row]:
    """Measure after a few jobs, with open connections and warm caches."""
    memory, share, asked = ground.none_yet(), ground.none_yet(), ground.none_yet()
    for side in ground.turns("idle"):
        used = _idle(ground, side, seconds)
        for figures, value in zip((memory, share, asked), used, strict=True):
            figures[side].append(value)
    return [
        Row(label="idle: memory", unit="MiB", values=memory, digits=1, low_is_good=True),
        Row(label="idle: processor", unit="% of a core", values=share, digits=2, low_is_good=True),
        Row(
            label="idle: statements",
            unit="a second",
            values=asked,
            digits=2,
            low_is_good=True,
            asked="at most 2",
        ),
    ]


def _idle(ground: Ground, side: str, seconds: float) -> tuple[float, float, float]:
    with ground.field(side) as field:
        ground.server.execute(COUNTED.format(field.database))
        with field.working() as (first,):
            field.seconds("one", 0)
            field.wait_for(WARM)
            time.sleep(SETTLE)
            before = _statements(ground, field.database), sum(map(_ticks, _tree(first)))
            time.sleep(seconds)
            memory = sum(map(_memory, _tree(first))) / 1024
            used = sum(map(_ticks, _tree(first))) - before[1]
            asked = _statements(ground, field.database) - before[0]
    return memory, 100 * used / TICKS / seconds, asked / seconds


def _statements(ground: Ground, database: str) -> int:
    """Count the statements in the server log by the lines that name the database."""
    return len(re.findall(rf"\] {database} LOG:  (?:statement|execute)", ground.server.log))


def _tree(pid: int) -> Iterator[int]:
    """Yield the ids of the process and its descendants."""
    yield pid
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in thread.joinpath("children").read_text().split():
            yield from _tree(int(child))


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _memory(pid: int) -> int:
    """Return the proportional memory (PSS) in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
