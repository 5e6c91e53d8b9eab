"""One small world and one act for every write of a move, to be killed half-way."""

from datetime import timedelta
from typing import Any, Final

from outlast.core.decide import decide
from outlast.core.event import Succeeded
from outlast.store.contract.transfer import COLUMNS, FIRST, Kind, Row, Stage, Step
from support.crash.scenarios import Act, Prepare, Scenario, World, nothing

OTHER: Final = "sqlite:////elsewhere.db"
NUMBERS: Final = [f"00000000-0000-7000-8000-0000000000{n:02x}" for n in range(9)]
AT: Final = 1_700_000_000_000_000


def _step(stage: Stage) -> Step:
    span = timedelta(seconds=30) if stage is Stage.SEALED else None
    return Step(stage=stage, other=OTHER, by="move-1", span=span, grace=span)


def standing(*stages: Stage) -> Prepare:
    """A store that has gone these steps."""

    async def prepare(w: World) -> None:
        for stage in stages:
            assert await w.store.stand(_step(stage))

    return prepare


def stepping(stage: Stage) -> Act:
    async def act(w: World, _: None) -> None:
        assert await w.store.stand(_step(stage))

    return act


def _row(of: Kind, /, **over: Any) -> Row:
    plain = dict.fromkeys(COLUMNS[of])
    return [(plain | over)[name] for name in COLUMNS[of]]


def _job(number: int, **over: Any) -> Row:
    names = dict.fromkeys(("type", "name", "delivery"), "lease")
    counts = dict.fromkeys(("priority", "position", "token", "failures", "losses"), 0)
    own = {"seq": number, "id": NUMBERS[number], "root_id": NUMBERS[number], "params": "{}"}
    place = {"queue": "default", "state": "queued", "created_at": AT, "available_at": AT}
    return _row(Kind.JOBS, **{**names, **counts, **own, **place, **over})


FAILED: Final = {"state": "failed", "finished_at": AT, "token": 1, "failures": 1}
_SLOT: Final = {"series": "nightly", "slot_at": AT, "planned": AT, "actual": AT}

ROWS: Final[dict[Kind, tuple[Row, ...]]] = {
    Kind.QUEUES: (
        _row(Kind.QUEUES, name="lane", ordering="scheduled", gap=100),
        _row(Kind.QUEUES, name="lane", ordering="position", gap=50),
    ),
    Kind.GROUPS: tuple(
        _row(Kind.GROUPS, seq=1, id=NUMBERS[8], mode="parallel", on_failure="stop", total=1,
             created_at=AT, sealed_at=at, swept=False)
        for at in (None, AT)
    ),
    Kind.KEYS: tuple(
        _row(Kind.KEYS, scope="active", key="a", bucket="", job_id=NUMBERS[n]) for n in (1, 2)
    ),
    Kind.SLOTS: (
        _row(Kind.SLOTS, outcome="missed", **_SLOT),
        _row(Kind.SLOTS, outcome="skipped", job_id=NUMBERS[1], **_SLOT),
    ),
    Kind.SCHEDULES: tuple(
        _row(Kind.SCHEDULES, id=NUMBERS[7], name="nightly", plan="{}", version=n, enabled=False,
             created_at=AT, updated_at=AT)
        for n in (1, 2)
    ),
    Kind.RECORDS: tuple(
        _row(Kind.RECORDS, kind="note", key="a", value="1", version=n, created_at=AT, updated_at=AT)
        for n in (1, 2)
    ),
    Kind.JOBS: (_job(1), _job(1, params='{"a":1}', **FAILED)),
    Kind.RUNS: tuple(
        _row(Kind.RUNS, seq=1, token=1, job_id=NUMBERS[1], run_id=NUMBERS[6], status="failed",
             holder="worker-1", boot_id="boot-1", started_at=AT, finished_at=AT, artifacts=left)
        for left in ([], ["a.txt"])
    ),
    Kind.EVENTS: tuple(
        _row(Kind.EVENTS, id=n, job_id=NUMBERS[1], at=AT, kind="retry", token=1) for n in (1, 2)
    ),
    Kind.RESERVATIONS: tuple(
        _row(Kind.RESERVATIONS, seq=1, id=NUMBERS[5], queue="default", job_id=NUMBERS[1],
             caller="somebody", request="now", status=status, reserved_at=AT, expires_at=AT,
             span=1, ended_at=at)
        for status, at in (("active", None), ("released", AT))
    ),
    Kind.COUNTERS: (
        _row(Kind.COUNTERS, name="records", last=7), _row(Kind.COUNTERS, name="records", last=9),
    ),
}  # fmt: skip
"""A row of each kind as it is first copied, and as it is when it has changed since."""


async def _filling(w: World) -> None:
    await w.store.stand(_step(Stage.FILLING))


async def _filled(w: World) -> None:
    await _filling(w)
    for kind, rows in ROWS.items():
        await w.store.load(kind, rows[:1])


def _loading(kind: Kind) -> Act:
    async def act(w: World, _: None) -> None:
        await w.store.load(kind, [ROWS[kind][1]])

    return act


def _dropping(kind: Kind) -> Act:
    async def act(w: World, _: None) -> None:
        await w.store.load(kind, [], [ROWS[kind][0][: len(FIRST[kind])]])

    return act


async def _bury(w: World, _: None) -> None:
    """It failed when it was first copied, and was given up since."""
    await w.store.load(Kind.JOBS, [_job(1, params='{"a":1}', **FAILED | {"state": "dead_letter"})])


async def _failed(w: World) -> None:
    await _filled(w)
    await w.store.load(Kind.JOBS, [ROWS[Kind.JOBS][1]])


async def _at_work(w: World) -> Any:
    claim = await w.started()
    await w.store.stand(_step(Stage.SEALED))
    return claim


async def _finish_sealed(w: World, claim: Any) -> None:
    assert await w.store.apply([decide(claim, Succeeded(), new_id=w.new_id)]) == [True]


async def _dump(w: World, _: None) -> None:
    await w.store.footing()
    for kind in Kind:
        await w.store.dump(kind, limit=9)


DROPPED: Final = frozenset(Kind) - {Kind.SLOTS, Kind.RUNS, Kind.COUNTERS}

MOVING: dict[str, Scenario] = {
    "move_fill": Scenario(nothing, stepping(Stage.FILLING)),
    "move_seal": Scenario(nothing, stepping(Stage.SEALED)),
    "move_unseal": Scenario(standing(Stage.SEALED), stepping(Stage.OPEN)),
    "move_decide": Scenario(standing(Stage.SEALED), stepping(Stage.MOVED)),
    "move_ready": Scenario(standing(Stage.FILLING), stepping(Stage.READY)),
    "move_open": Scenario(standing(Stage.FILLING, Stage.READY), stepping(Stage.OPEN)),
    "move_finish_sealed": Scenario(_at_work, _finish_sealed),
    "move_dump": Scenario(_filled, _dump),
    "move_bury": Scenario(_failed, _bury),
    **{f"move_load_{kind}": Scenario(_filled, _loading(kind)) for kind in Kind},
    **{f"move_drop_{kind}": Scenario(_filled, _dropping(kind)) for kind in sorted(DROPPED)},
}
