"""Thousands of jobs while whole workers are killed; counts lost and doubled jobs."""

import statistics
from pathlib import Path
from typing import Any

from tests.chaos.kill_storm import KillReport, storm

from bench.progress import tell

JOBS_PER_KILL = 100


def measure(folder: Path, *, jobs: int) -> dict[str, Any]:
    """Kill one worker per hundred jobs; all figures for lost or doubled work must be 0."""
    place = folder / "storm"
    place.mkdir()
    after = storm(place, jobs=jobs, kills=max(1, jobs // JOBS_PER_KILL), tell=tell)
    tell()
    return figures(after)


def figures(after: KillReport) -> dict[str, Any]:
    took = after.takeovers
    return {
        "jobs": len(after.jobs),
        "kills": len(after.kills),
        "lost": len(after.lost) + len(after.unsuccessful),
        "doubled": len(after.doubled),
        "stuck": after.ledger.unfinished,
        "effects lost or doubled": (after.effects - after.paid).total()
        + (after.paid - after.effects).total(),
        "runs cut short and repeated": after.repeats,
        "late writes refused": after.refused,
        "takeover p50, s": round(statistics.median(took), 2) if took else None,
        "takeover p99, s": round(took[int(len(took) * 0.99)], 2) if took else None,
    }
