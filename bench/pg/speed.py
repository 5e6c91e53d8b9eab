"""Speed of enqueue, pick-up and run."""

import time

from bench.pg import marks
from bench.pg.child import WARM
from bench.pg.ground import Ground, share
from bench.pg.rows import Row

SETTLE = 1.0
"""Seconds until a worker that has just run something is idle."""


def drain(ground: Ground, jobs: int) -> list[Row]:
    """No-op jobs, one worker and then two."""
    asked = {1: "at least 2.0x pgqueuer", 2: "at least 1.5x pgqueuer"}
    return [_drain(ground, jobs, workers, told) for workers, told in asked.items()]


def _drain(ground: Ground, jobs: int, workers: int, asked: str) -> Row:
    taken = ground.none_yet()
    label = f"drain, {workers} worker{'s' if workers > 1 else ''}"
    for side in ground.turns(label):
        with ground.field(side) as field:
            field.seconds("bulk", share(side, jobs))
            field.rest()
            taken[side].append(field.drain(share(side, jobs), workers=workers))
    return Row(label=label, unit="jobs/s", values=taken, asked=asked)


def one(ground: Ground, jobs: int) -> list[Row]:
    """One after the other, each awaited until it is durable."""
    return [_enqueue(ground, "one", "enqueue one by one", jobs)]


def bulk(ground: Ground, jobs: int) -> list[Row]:
    """Enqueue a thousand at a time; only Outlast validates them."""
    return [_enqueue(ground, "bulk", "enqueue 1,000 at a time", jobs)]


def _enqueue(ground: Ground, what: str, label: str, jobs: int) -> Row:
    taken = ground.none_yet()
    for side in ground.turns(label):
        with ground.field(side) as field:
            taken[side].append(jobs / field.seconds(what, jobs))
    return Row(label=label, unit="jobs/s", values=taken)


def latency(ground: Ground, jobs: int) -> list[Row]:
    """From the call that enqueues to the handler's start in another process, which is idle."""
    middles, ends = ground.none_yet(), ground.none_yet()
    for side in ground.turns("pick-up"):
        waits = sorted(_waits(ground, side, jobs))
        middles[side].append(1000 * waits[len(waits) // 2])
        ends[side].append(1000 * waits[len(waits) * 99 // 100])
    common = {"unit": "ms", "digits": 2, "low_is_good": True}
    return [
        Row(label="pick-up, p50", values=middles, **common),
        Row(label="pick-up, p99", values=ends, **common),
    ]


def _waits(ground: Ground, side: str, jobs: int) -> list[float]:
    with ground.field(side) as field, field.working():
        field.seconds("one", 0)
        field.wait_for(WARM)
        time.sleep(SETTLE)
        field.seconds("paced", jobs)
        field.wait_for(WARM + WARM + jobs)
        return marks.read(field.marks).waits[WARM + WARM :]
