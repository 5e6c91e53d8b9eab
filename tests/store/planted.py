"""One world, and every violation there is, planted in it by hand: what `verify` must find."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outlast.core.audit.violation import ViolationCode
from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import FAILED, ended, job_of, put, settle, started, take

DONE, RETRIED, QUEUED, LINK, NEXT, ONCE, DEAD, DROPPED, OTHER, CLOSED = range(1, 11)
"""The jobs of the world, by their seq."""
STRANGER: Final = 99
NOBODY: Final = "00000000-0000-7000-8000-00000000dead"


async def sound_world(store: SqliteStore) -> None:
    """One job of each kind, in the order of the names above."""
    await ended(store)
    await settle(store, await started(store, queue="retried"), FAILED)
    await take(store, queue="retried")
    await put(store, queue="queued")
    await ended(store, FAILED, queue="link", delivery=Delivery.LINKED)
    await started(store, queue="once", name="nightly", delivery=Delivery.ONCE)
    await ended(store, FAILED, queue="dead", max_attempts=1)
    dropped = await put(store, queue="dropped")
    await settle(store, await job_of(store, dropped), CancelRequested())
    await put(store, queue="other", active_key="k")
    await ended(store, FAILED, queue="closed", delivery=Delivery.ONCE)


class Vandal:
    """A connection for which no trigger, check or foreign key is in the way; indexes return not."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, sql: str, *values: Any) -> None:
        done = self._connection.execute(sql, values)
        assert done.rowcount, f"nothing was broken by: {sql}"

    def drop(self, index: str) -> None:
        self._connection.execute(f"DROP INDEX {index}")

    def copy(self, table: str, key: str, value: Any, **over: Any) -> None:
        """A second row like the one of that key, with something else in it."""
        cursor = self._connection.execute(f"SELECT * FROM {table} WHERE {key} = ?", (value,))  # noqa: S608 - ours
        names = [name for name, *_ in cursor.description]
        row = {**dict(zip(names, cursor.fetchone(), strict=True)), **over}
        self.insert(table, **row)

    def insert(self, table: str, **row: Any) -> None:
        places = ", ".join(f":{name}" for name in row)
        self._connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", row)  # noqa: S608 - ours

    def id(self, seq: int) -> str:
        found = self._connection.execute("SELECT id FROM outlast_jobs WHERE seq = ?", (seq,))
        return str(found.fetchone()[0])

    def second_job(self, like: int, **over: Any) -> None:
        """Another job like that one, waiting."""
        self.copy("outlast_jobs", "seq", like, **{"seq": STRANGER, "id": NOBODY, **over})
        self.copy("outlast_waiting", "job", like, job=STRANGER)

    def event(self, job: int, kind: str, token: int = 0) -> None:
        self.insert("outlast_events", job=job, at=1, kind=kind, token=token)

    def end(self, job: int, state: str, like: int) -> None:
        self.copy("outlast_ends", "job", like, job=job, state=state, queue="queued")

    def reserve(self, number: int, job_id: str, queue: str, status: str = "active") -> None:
        self.insert(
            "outlast_reservations",
            id=f"{number:036}", queue=queue, job_id=job_id, caller="c", request="r", status=status,
            reserved_at=1, expires_at=2, span=1, until=2,
            ended_at=None if status == "active" else 2,
        )  # fmt: skip

    def group(self, mode: str, **members: str) -> None:
        """A sealed group of those jobs, each in that waiting state."""
        self.insert(
            "outlast_groups",
            seq=7, id=f"{7:036}", mode=mode, on_failure="stop", total=len(members), created_at=1,
            sealed_at=1,
        )  # fmt: skip
        for name, state in members.items():
            seq = {"queued": QUEUED, "other": OTHER}[name]
            self.run("UPDATE outlast_jobs SET grp = 7 WHERE seq = ?", seq)
            self.run("UPDATE outlast_waiting SET grp = 7, state = ? WHERE job = ?", state, seq)


@dataclass(frozen=True, slots=True)
class Plant:
    """How the world is broken, which rows must be named, of which job, and what else it breaks."""

    code: ViolationCode
    rows: tuple[str, ...]
    job: int | None
    do: Callable[[Vandal], None]
    also: frozenset[ViolationCode] = frozenset()


def plant(path: Path, do: Callable[[Vandal], None]) -> None:
    """Break the file; its triggers are put back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = 0")
        connection.execute("PRAGMA ignore_check_constraints = 1")
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        do(Vandal(connection))
        for _, sql in triggers:
            connection.execute(sql)


def _sql(*statements: str) -> Callable[[Vandal], None]:
    def do(vandal: Vandal) -> None:
        for statement in statements:
            vandal.run(statement)

    return do


def _ran_twice(v: Vandal) -> None:
    v.copy("outlast_runs", "job", LINK, token=2, run_id=NOBODY)
    v.run("UPDATE outlast_ends SET token = 2, failures = 2 WHERE job = ?", LINK)
    v.run("UPDATE outlast_waiting SET failures = 2 WHERE job = ?", NEXT)


def _waits_again(v: Vandal) -> None:
    v.copy("outlast_runs", "job", LINK, job=NEXT, run_id=NOBODY, status="released")
    v.run("UPDATE outlast_waiting SET token = 1 WHERE job = ?", NEXT)


def _followed_twice(v: Vandal) -> None:
    v.drop("outlast_jobs_retry_of")
    v.second_job(NEXT)


def _unfollowed(v: Vandal) -> None:
    v.run("DELETE FROM outlast_waiting WHERE job = ?", NEXT)
    v.run("DELETE FROM outlast_jobs WHERE seq = ?", NEXT)


def _predecessor_gone(v: Vandal) -> None:
    for table in ("runs", "ends", "events"):
        v.run(f"DELETE FROM outlast_{table} WHERE job = ?", LINK)  # noqa: S608 - ours
    v.run("DELETE FROM outlast_jobs WHERE seq = ?", LINK)


def _reserved_twice(v: Vandal) -> None:
    v.drop("outlast_reservations_active")
    v.reserve(1, v.id(QUEUED), "queued")
    v.reserve(2, v.id(QUEUED), "queued")


def _once_overlaps(v: Vandal) -> None:
    v.drop("outlast_open_name")
    v.copy("outlast_jobs", "seq", ONCE, seq=STRANGER, id=NOBODY)
    v.copy("outlast_open_runs", "job", ONCE, job=STRANGER, run_id=NOBODY)


def _key(scope: str, seq: int | None) -> Callable[[Vandal], None]:
    def do(v: Vandal) -> None:
        job_id = NOBODY if seq is None else v.id(seq)
        v.insert("outlast_keys", scope=scope, key="x", bucket="", job_id=job_id)

    return do


_C = ViolationCode
PLANTS: Final = (
    Plant(_C.DETACHED, ("jobs seq=3",), 3, _sql("DELETE FROM outlast_waiting WHERE job=3")),
    Plant(
        _C.TWO_STATE_ROWS,
        ("waiting job=3", "ends job=3"),
        3,
        lambda v: v.end(QUEUED, "cancelled", like=DROPPED),
    ),
    Plant(
        _C.TWO_STATE_ROWS,
        ("open_runs job=2", "ends job=2"),
        2,
        lambda v: v.copy(
            "outlast_ends", "job", DEAD, job=RETRIED, queue="retried", token=1, failures=1
        ),
    ),
    Plant(
        _C.STATE_ROW_MISMATCH,
        ("jobs seq=3", "waiting job=3"),
        3,
        _sql("UPDATE outlast_waiting SET queue='elsewhere' WHERE job=3"),
    ),
    Plant(
        _C.STATE_ROW_MISMATCH,
        ("jobs seq=6", "open_runs job=6"),
        6,
        _sql("UPDATE outlast_open_runs SET name='another' WHERE job=6"),
    ),
    Plant(
        _C.STATE_ROW_MISMATCH,
        ("jobs seq=1", "ends job=1"),
        1,
        _sql("UPDATE outlast_ends SET queue='elsewhere' WHERE job=1"),
    ),
    Plant(
        _C.STATE_ROW_MISMATCH,
        ("jobs seq=3", "waiting job=3"),
        3,
        _sql("UPDATE outlast_waiting SET grp=77 WHERE job=3"),
    ),
    Plant(
        _C.UNKNOWN_STATE,
        ("waiting job=3",),
        3,
        _sql("UPDATE outlast_waiting SET state='dozing' WHERE job=3"),
    ),
    Plant(
        _C.UNKNOWN_STATE,
        ("runs job=2 token=1",),
        2,
        _sql("UPDATE outlast_runs SET status='odd' WHERE job=2"),
        frozenset({_C.COUNTS_MISMATCH}),
    ),
    Plant(
        _C.UNKNOWN_STATE,
        ("ends job=1",),
        1,
        _sql("UPDATE outlast_ends SET state='over' WHERE job=1"),
        frozenset({_C.END_UNEXPLAINED, _C.END_EVENT_MISSING}),
    ),
    Plant(_C.WAITS_AGAIN, ("waiting job=5",), NEXT, _waits_again),
    Plant(_C.RAN_TWICE, ("runs job=4 token=1", "runs job=4 token=2"), LINK, _ran_twice),
    Plant(
        _C.RAN_TWICE,
        ("runs job=6 token=1", "open_runs job=6"),
        ONCE,
        lambda v: (
            v.copy("outlast_runs", "job", LINK, job=ONCE, run_id=NOBODY, status="released"),
            v.run("UPDATE outlast_open_runs SET token = 2 WHERE job = ?", ONCE),
        )[0],
    ),
    Plant(
        _C.RUN_MISSING,
        ("runs job=1 token=3",),
        1,
        _sql(
            "UPDATE outlast_runs SET token=3 WHERE job=1",
            "UPDATE outlast_ends SET token=3 WHERE job=1",
        ),
    ),
    Plant(
        _C.TOKEN_MISMATCH,
        ("ends job=1", "runs job=1 token=1"),
        1,
        _sql("UPDATE outlast_ends SET token=5 WHERE job=1"),
    ),
    Plant(
        _C.TOKEN_MISMATCH,
        ("open_runs job=2",),
        2,
        _sql("DELETE FROM outlast_runs WHERE job=2"),
        frozenset({_C.COUNTS_MISMATCH}),
    ),
    Plant(
        _C.OPEN_NOT_LAST,
        ("open_runs job=2", "runs job=2 token=1"),
        2,
        _sql("UPDATE outlast_open_runs SET token=1 WHERE job=2"),
    ),
    Plant(
        _C.RUN_WITHOUT_END,
        ("runs job=4 token=1",),
        LINK,
        _sql("UPDATE outlast_runs SET finished_at='never' WHERE job=4"),
    ),
    Plant(
        _C.UNEXPECTED_RESULT,
        ("runs job=4 token=1",),
        LINK,
        _sql("UPDATE outlast_runs SET result='1' WHERE job=4"),
    ),
    Plant(
        _C.UNKNOWN_HOLDER,
        ("open_runs job=2",),
        2,
        _sql("UPDATE outlast_open_runs SET worker=999 WHERE job=2"),
    ),
    Plant(
        _C.UNKNOWN_HOLDER,
        ("runs job=1 token=1",),
        1,
        _sql("UPDATE outlast_runs SET worker=999 WHERE job=1"),
    ),
    Plant(
        _C.CONTINUED_AFTER_END,
        ("runs job=2 token=1", "open_runs job=2"),
        2,
        _sql(
            "UPDATE outlast_runs SET status='succeeded' WHERE job=2",
            "UPDATE outlast_open_runs SET failures=0 WHERE job=2",
        ),
    ),
    Plant(
        _C.END_UNEXPLAINED,
        ("ends job=1", "runs job=1 token=1"),
        1,
        _sql("UPDATE outlast_runs SET status='released', result=NULL WHERE job=1"),
    ),
    Plant(
        _C.END_UNEXPLAINED,
        ("ends job=8",),
        DROPPED,
        _sql(
            "UPDATE outlast_ends SET state='succeeded' WHERE job=8",
            "DELETE FROM outlast_events WHERE job=8",
        ),
    ),
    Plant(
        _C.END_TIME_MISMATCH,
        ("ends job=1", "runs job=1 token=1"),
        1,
        _sql("UPDATE outlast_ends SET at=at+1 WHERE job=1"),
    ),
    Plant(
        _C.END_EVENT_MISSING, ("ends job=7",), DEAD, _sql("DELETE FROM outlast_events WHERE job=7")
    ),
    Plant(
        _C.END_EVENT_MISSING,
        ("ends job=8",),
        DROPPED,
        _sql("UPDATE outlast_ends SET at=1 WHERE job=8"),
    ),
    Plant(
        _C.EVENT_CONTRADICTS,
        ("ends job=8", "events id=4"),
        DROPPED,
        _sql("UPDATE outlast_ends SET state='skipped' WHERE job=8"),
    ),
    Plant(
        _C.EVENT_CONTRADICTS,
        ("waiting job=3", "events id=6"),
        3,
        lambda v: v.event(QUEUED, "cancelled"),
    ),
    Plant(
        _C.EVENT_OF_NO_RUN, ("events id=6",), 3, lambda v: v.event(QUEUED, "cancel_requested", 4)
    ),
    Plant(
        _C.COUNTS_MISMATCH,
        ("waiting job=3",),
        3,
        _sql("UPDATE outlast_waiting SET failures=3 WHERE job=3"),
    ),
    Plant(
        _C.COUNTS_MISMATCH,
        ("waiting job=5",),
        NEXT,
        _sql("UPDATE outlast_waiting SET failures=0 WHERE job=5"),
    ),
    Plant(
        _C.TWO_SUCCESSORS,
        ("jobs seq=4", "jobs id={5}", f"jobs id={NOBODY}"),
        LINK,
        _followed_twice,
    ),
    Plant(
        _C.EARLY_SUCCESSOR,
        ("jobs seq=3", f"jobs id={NOBODY}"),
        3,
        lambda v: v.second_job(QUEUED, retry_of=QUEUED, root=QUEUED),
    ),
    Plant(_C.MISSING_SUCCESSOR, ("ends job=4",), LINK, _unfollowed),
    Plant(
        _C.UNEXPECTED_SUCCESSOR, ("jobs seq=10",), CLOSED, lambda v: v.event(CLOSED, "chained", 1)
    ),
    Plant(_C.MISSING_PREDECESSOR, ("jobs seq=5",), NEXT, _predecessor_gone),
    Plant(
        _C.ROOT_MISMATCH,
        ("jobs seq=5", "jobs id={4}"),
        NEXT,
        _sql("UPDATE outlast_jobs SET root=3 WHERE seq=5"),
    ),
    Plant(
        _C.ROOT_MISMATCH,
        ("jobs seq=5", "jobs id={4}"),
        NEXT,
        _sql("UPDATE outlast_jobs SET root=77 WHERE seq=5"),
    ),
    Plant(
        _C.PARAMS_NOT_JSON,
        ("jobs seq=3",),
        3,
        _sql("UPDATE outlast_jobs SET params='{' WHERE seq=3"),
    ),
    Plant(
        _C.RESERVATION_OF_ENDED_JOB,
        (f"reservations id={1:036}", "jobs seq=1"),
        1,
        lambda v: v.reserve(1, v.id(DONE), "default"),
    ),
    Plant(
        _C.RESERVATION_OF_OTHER_QUEUE,
        (f"reservations id={1:036}", "jobs seq=3"),
        3,
        lambda v: v.reserve(1, v.id(QUEUED), "another", "released"),
    ),
    Plant(
        _C.BLOCKED_WITHOUT_GROUP,
        ("waiting job=3",),
        3,
        _sql("UPDATE outlast_waiting SET state='blocked' WHERE job=3"),
    ),
    Plant(
        _C.MISSING_GROUP,
        ("jobs seq=3",),
        3,
        _sql(
            "UPDATE outlast_jobs SET grp=77 WHERE seq=3",
            "UPDATE outlast_waiting SET grp=77 WHERE job=3",
        ),
    ),
    Plant(
        _C.ORPHAN_RUN,
        ("runs job=99 token=1",),
        None,
        lambda v: v.copy("outlast_runs", "job", DONE, job=STRANGER, run_id=NOBODY),
    ),
    Plant(_C.DANGLING_EVENT, ("events id=6",), None, lambda v: v.event(STRANGER, "cancelled")),
    Plant(
        _C.DANGLING_STATE_ROW,
        ("waiting job=99",),
        None,
        lambda v: v.copy("outlast_waiting", "job", QUEUED, job=STRANGER),
    ),
    Plant(
        _C.DANGLING_STATE_ROW,
        ("open_runs job=99",),
        None,
        lambda v: v.copy("outlast_open_runs", "job", RETRIED, job=STRANGER, run_id=NOBODY),
    ),
    Plant(
        _C.DANGLING_STATE_ROW,
        ("ends job=99",),
        None,
        lambda v: v.copy("outlast_ends", "job", DONE, job=STRANGER),
    ),
    Plant(_C.DANGLING_KEY, ("keys scope=active key=x",), None, _key("active", None)),
    Plant(_C.KEY_OF_ENDED_CHAIN, ("keys scope=active key=x",), DONE, _key("active", DONE)),
    Plant(_C.KEY_OF_NON_ROOT, ("keys scope=key key=x bucket=",), NEXT, _key("key", NEXT)),
    Plant(
        _C.KEY_OF_NON_ROOT,
        ("slots series=s slot_at=1",),
        NEXT,
        lambda v: v.insert(
            "outlast_slots",
            series="s",
            slot_at=1,
            outcome="manual",
            planned=1,
            actual=1,
            job_id=v.id(NEXT),
        ),
    ),
    Plant(
        _C.SLOT_MISMATCH,
        ("jobs seq=3",),
        QUEUED,
        lambda v: v.run("UPDATE outlast_jobs SET slot_at = 1 WHERE seq = ?", QUEUED),
    ),
    Plant(
        _C.DANGLING_RESERVATION,
        (f"reservations id={1:036}",),
        None,
        lambda v: v.reserve(1, NOBODY, "queued"),
    ),
    Plant(
        _C.RESERVED_TWICE,
        (f"reservations id={1:036}", f"reservations id={2:036}"),
        None,
        _reserved_twice,
    ),
    Plant(_C.ONCE_OVERLAP, ("open_runs job=6", "open_runs job=99"), None, _once_overlaps),
    Plant(
        _C.GROUP_OUT_OF_TURN,
        ("waiting job=3", "waiting job=9", f"groups id={7:036}"),
        None,
        lambda v: v.group("sequential", queued="queued", other="scheduled"),
    ),
    Plant(
        _C.GROUP_OUT_OF_TURN,
        ("waiting job=9", f"groups id={7:036}"),
        None,
        lambda v: v.group("sequential", queued="blocked", other="queued"),
    ),
    Plant(
        _C.STALLED_GROUP,
        (f"groups id={7:036}",),
        None,
        lambda v: v.group("sequential", queued="blocked", other="blocked"),
    ),
    Plant(
        _C.STALLED_GROUP,
        (f"groups id={7:036}",),
        None,
        lambda v: v.group("parallel", queued="queued", other="blocked"),
    ),
)
