"""One sound world, and the means to break it by hand: what `verify` must find."""

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


class RowEditor:
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
            self.run("UPDATE outlast_jobs SET member_of = 7 WHERE seq = ?", seq)
            self.run(
                "UPDATE outlast_waiting SET member_of = 7, state = ? WHERE job = ?", state, seq
            )


@dataclass(frozen=True, slots=True)
class PlantedViolation:
    """How the world is broken, which rows must be named, of which job, and what else it breaks."""

    code: ViolationCode
    rows: tuple[str, ...]
    job: int | None
    do: Callable[[RowEditor], None]
    also: frozenset[ViolationCode] = frozenset()


def plant(path: Path, do: Callable[[RowEditor], None]) -> None:
    """Break the file; its triggers are put back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = 0")
        connection.execute("PRAGMA ignore_check_constraints = 1")
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        do(RowEditor(connection))
        for _, sql in triggers:
            connection.execute(sql)


def execute(*statements: str) -> Callable[[RowEditor], None]:
    """Break the world by statements alone."""

    def do(vandal: RowEditor) -> None:
        for statement in statements:
            vandal.run(statement)

    return do
