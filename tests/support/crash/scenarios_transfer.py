"""One small world and one act for every write of a move, to be killed half-way."""

from datetime import timedelta
from typing import Any, Final

from outlast.core.decide import decide
from outlast.core.event import Succeeded
from outlast.store.contract.transfer import (
    COLUMNS,
    FIRST,
    Row,
    StatusChange,
    TableKind,
    TransferStage,
)
from support.crash.world import Act, Prepare, Scenario, World, nothing

OTHER: Final = "sqlite:////elsewhere.db"
NUMBERS: Final = [f"00000000-0000-7000-8000-0000000000{n:02x}" for n in range(9)]
AT: Final = 1_700_000_000_000_000


def _step(stage: TransferStage) -> StatusChange:
    span = timedelta(seconds=30) if stage is TransferStage.SEALED else None
    return StatusChange(stage=stage, other=OTHER, transfer_id="move-1", span=span, grace=span)


def standing(*stages: TransferStage) -> Prepare:
    """A store that has gone these steps."""

    async def prepare(w: World) -> None:
        for stage in stages:
            assert await w.store.change_transfer_status(_step(stage))

    return prepare


def stepping(stage: TransferStage) -> Act:
    async def act(w: World, _: None) -> None:
        assert await w.store.change_transfer_status(_step(stage))

    return act


def _row(of: TableKind, /, **over: Any) -> Row:
    plain = dict.fromkeys(COLUMNS[of])
    return [(plain | over)[name] for name in COLUMNS[of]]


def _job(number: int, **over: Any) -> Row:
    names = dict.fromkeys(("type", "name", "delivery"), "lease")
    counts = dict.fromkeys(("priority", "position", "token", "failures", "losses"), 0)
    own = {"seq": number, "id": NUMBERS[number], "root_id": NUMBERS[number], "params": "{}"}
    place = {"queue": "default", "state": "queued", "created_at": AT, "available_at": AT}
    return _row(TableKind.JOBS, **{**names, **counts, **own, **place, **over})


FAILED: Final = {"state": "failed", "finished_at": AT, "token": 1, "failures": 1}
_SLOT: Final = {"series": "nightly", "slot_at": AT, "planned": AT, "actual": AT}

ROWS: Final[dict[TableKind, tuple[Row, ...]]] = {
    TableKind.QUEUES: (
        _row(TableKind.QUEUES, name="lane", ordering="scheduled", gap=100),
        _row(TableKind.QUEUES, name="lane", ordering="position", gap=50),
    ),
    TableKind.GROUPS: tuple(
        _row(TableKind.GROUPS, seq=1, id=NUMBERS[8], mode="parallel", on_failure="stop", total=1,
             created_at=AT, sealed_at=at, swept=False)
        for at in (None, AT)
    ),
    TableKind.KEYS: tuple(
        _row(TableKind.KEYS, scope="active", key="a", bucket="", job_id=NUMBERS[n]) for n in (1, 2)
    ),
    TableKind.SLOTS: (
        _row(TableKind.SLOTS, outcome="missed", **_SLOT),
        _row(TableKind.SLOTS, outcome="skipped", job_id=NUMBERS[1], **_SLOT),
    ),
    TableKind.SCHEDULES: tuple(
        _row(TableKind.SCHEDULES, id=NUMBERS[7], name="nightly", plan="{}", version=n,
             enabled=False, created_at=AT, updated_at=AT)
        for n in (1, 2)
    ),
    TableKind.DOCUMENTS: tuple(
        _row(TableKind.DOCUMENTS, kind="note", key="a", value="1", version=n, created_at=AT,
             updated_at=AT)
        for n in (1, 2)
    ),
    TableKind.JOBS: (_job(1), _job(1, params='{"a":1}', **FAILED)),
    TableKind.RUNS: tuple(
        _row(TableKind.RUNS, seq=1, token=1, job_id=NUMBERS[1], run_id=NUMBERS[6], status="failed",
             holder="worker-1", boot_id="boot-1", started_at=AT, finished_at=AT, artifacts=left)
        for left in ([], ["a.txt"])
    ),
    TableKind.LOGS: tuple(
        _row(TableKind.LOGS, seq=1, token=1, first=1, job_id=NUMBERS[1], lines=1, text=text)
        for text in ("a", "b")
    ),
    TableKind.EVENTS: tuple(
        _row(TableKind.EVENTS, id=n, job_id=NUMBERS[1], at=AT, kind="retry", token=1)
        for n in (1, 2)
    ),
    TableKind.RESERVATIONS: tuple(
        _row(TableKind.RESERVATIONS, seq=1, id=NUMBERS[5], queue="default", job_id=NUMBERS[1],
             caller="caller-1", request="now", status=status, reserved_at=AT, expires_at=AT,
             span=1, ended_at=at)
        for status, at in (("active", None), ("released", AT))
    ),
    TableKind.COUNTERS: (
        _row(TableKind.COUNTERS, name="documents", last=7),
        _row(TableKind.COUNTERS, name="documents", last=9),
    ),
}  # fmt: skip
"""A row of each kind as it is first copied, and as it is when it has changed since."""


async def _filling(w: World) -> None:
    await w.store.change_transfer_status(_step(TransferStage.FILLING))


async def _filled(w: World) -> None:
    await _filling(w)
    for kind, rows in ROWS.items():
        await w.store.load(kind, rows[:1])


def _loading(kind: TableKind) -> Act:
    async def act(w: World, _: None) -> None:
        await w.store.load(kind, [ROWS[kind][1]])

    return act


def _dropping(kind: TableKind) -> Act:
    async def act(w: World, _: None) -> None:
        await w.store.load(kind, [], [ROWS[kind][0][: len(FIRST[kind])]])

    return act


async def _bury(w: World, _: None) -> None:
    """It failed when it was first copied, and was given up since."""
    await w.store.load(
        TableKind.JOBS, [_job(1, params='{"a":1}', **FAILED | {"state": "dead_letter"})]
    )


async def _failed(w: World) -> None:
    await _filled(w)
    await w.store.load(TableKind.JOBS, [ROWS[TableKind.JOBS][1]])


async def _at_work(w: World) -> Any:
    claim = await w.started()
    await w.store.change_transfer_status(_step(TransferStage.SEALED))
    return claim


async def _finish_sealed(w: World, claim: Any) -> None:
    assert await w.store.apply([decide(claim, Succeeded(), new_id=w.new_id)]) == [True]


async def _dump(w: World, _: None) -> None:
    await w.store.transfer_status()
    for kind in TableKind:
        await w.store.dump(kind, limit=9)


KEPT: Final = {TableKind.SLOTS, TableKind.RUNS, TableKind.LOGS, TableKind.COUNTERS}
DROPPED: Final = frozenset(TableKind) - KEPT

MOVING: dict[str, Scenario] = {
    "move_fill": Scenario(nothing, stepping(TransferStage.FILLING)),
    "move_seal": Scenario(nothing, stepping(TransferStage.SEALED)),
    "move_unseal": Scenario(standing(TransferStage.SEALED), stepping(TransferStage.OPEN)),
    "move_decide": Scenario(standing(TransferStage.SEALED), stepping(TransferStage.MOVED)),
    "move_ready": Scenario(standing(TransferStage.FILLING), stepping(TransferStage.READY)),
    "move_open": Scenario(
        standing(TransferStage.FILLING, TransferStage.READY), stepping(TransferStage.OPEN)
    ),
    "move_finish_sealed": Scenario(_at_work, _finish_sealed),
    "move_dump": Scenario(_filled, _dump),
    "move_bury": Scenario(_failed, _bury),
    **{f"move_load_{kind}": Scenario(_filled, _loading(kind)) for kind in TableKind},
    **{f"move_drop_{kind}": Scenario(_filled, _dropping(kind)) for kind in sorted(DROPPED)},
}
