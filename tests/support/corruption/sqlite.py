"""Breaking a SQLite file on purpose: its triggers and foreign keys out of the way for a moment."""
# ruff: noqa: S608 - the words that make up these statements are ours

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from outlast.core.ids import JobId
from outlast.core.reservation import ReservationId

PLACES = ("waiting", "open_runs", "ends")


class SqliteCorrupter:
    """Breaks the file at `path`, whoever has it open."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def detach(self, job_id: JobId, *, runs: bool = True) -> None:
        places = PLACES if runs else (*PLACES, "runs")
        self._write([_delete(place, job_id) for place in places])

    async def drop_successor(self, job_id: JobId) -> None:
        successor = f"(SELECT seq FROM outlast_jobs WHERE retry_of = {_seq(job_id)})"
        tables = (*PLACES, "runs", "events")
        gone = [f"DELETE FROM outlast_{table} WHERE job = {successor}" for table in tables]
        self._write([*gone, f"DELETE FROM outlast_jobs WHERE seq = {successor}"])

    async def disown(self, job_id: JobId) -> None:
        """Let its open run belong to a worker that was never there."""
        self._write([f"UPDATE outlast_open_runs SET worker = 999 WHERE job = {_seq(job_id)}"])

    async def orphan(self, job_id: JobId) -> None:
        gone = [_delete(table, job_id) for table in (*PLACES, "events")]
        self._write([*gone, f"DELETE FROM outlast_jobs WHERE id = '{job_id}'"])

    async def drop_slot_row(self, job_id: JobId) -> None:
        self._write([f"DELETE FROM outlast_slots WHERE job_id = '{job_id}'"])

    async def drop_active_key(self, key: str) -> None:
        self._write([f"DELETE FROM outlast_keys WHERE scope = 'active' AND key = '{key}'"])

    async def retarget_reservation(self, reservation_id: ReservationId, job_id: JobId) -> None:
        whom = f"SET job_id = '{job_id}' WHERE id = '{reservation_id}'"
        self._write([f"UPDATE outlast_reservations {whom}"])

    async def replace_params(self, job_id: JobId, params: str) -> None:
        checks_off = "PRAGMA ignore_check_constraints = 1"
        changed = f"UPDATE outlast_jobs SET params = '{params}' WHERE id = '{job_id}'"
        self._write([checks_off, changed])

    def _write(self, statements: Sequence[str]) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=30)
        try:
            connection.execute("PRAGMA foreign_keys = 0")
            connection.execute("BEGIN IMMEDIATE")
            triggers = connection.execute(
                "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
            ).fetchall()
            drops = [f"DROP TRIGGER {name}" for name, _ in triggers]
            for statement in (*drops, *statements, *(sql for _, sql in triggers)):
                connection.execute(statement)
            connection.execute("COMMIT")
        finally:
            connection.close()


def _delete(table: str, job_id: JobId) -> str:
    return f"DELETE FROM outlast_{table} WHERE job = {_seq(job_id)}"


def _seq(job_id: JobId) -> str:
    return f"(SELECT seq FROM outlast_jobs WHERE id = '{job_id}')"
