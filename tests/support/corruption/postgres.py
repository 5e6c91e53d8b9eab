"""Corruption of a PostgreSQL schema, with its triggers disabled."""
# ruff: noqa: S608 - the words that make up these statements are ours

from collections.abc import Sequence
from typing import Final

import asyncpg

from outlast.core.ids import JobId
from outlast.core.reservation import ReservationId
from outlast.store.postgres.url import PostgresUrl

PLACES: Final = ("waiting", "open_runs", "ends")
TABLES: Final = (
    *PLACES, "jobs", "runs", "events", "keys", "slots", "schedules", "queues", "reservations",
    "groups", "documents", "workers", "transfer_status", "labels",
)  # fmt: skip


async def empty(address: PostgresUrl) -> None:
    """Delete all rows; faster than a new schema."""
    connection = await asyncpg.connect(address.dsn)
    try:
        await empty_on(connection, address.schema)
    finally:
        await connection.close()


async def empty_on(connection: asyncpg.Connection, schema: str, *more: str) -> None:
    """Delete all rows on an open connection, of `more` tables too."""
    gone = [f"DELETE FROM {{}}.{table}" for table in (*TABLES, *more)]
    await _write_on(connection, schema, [*gone, UNKNOWN_WORKER])


UNKNOWN_WORKER: Final = "INSERT INTO {}.workers (id, instance_id, boot_id) VALUES (0, '?', '?')"


class PostgresCorrupter:
    """Corrupts the schema of a URL, also while stores are open."""

    def __init__(self, address: PostgresUrl) -> None:
        self._address = address

    async def detach(self, job_id: JobId, *, runs: bool = True) -> None:
        places = PLACES if runs else (*PLACES, "runs")
        await self._write([_delete(place, f"'{job_id}'") for place in places])

    async def drop_successor(self, job_id: JobId) -> None:
        successor = f"(SELECT id FROM {{0}}.jobs WHERE retry_of = '{job_id}')"
        gone = [_delete(table, successor) for table in (*PLACES, "runs", "events")]
        await self._write([*gone, f"DELETE FROM {{0}}.jobs WHERE retry_of = '{job_id}'"])

    async def disown(self, job_id: JobId) -> None:
        """Let its open run reference a worker that does not exist."""
        await self._write([f"UPDATE {{0}}.open_runs SET worker = 999 WHERE job = '{job_id}'"])

    async def orphan(self, job_id: JobId) -> None:
        gone = [_delete(table, f"'{job_id}'") for table in (*PLACES, "events")]
        await self._write([*gone, f"DELETE FROM {{0}}.jobs WHERE id = '{job_id}'"])

    async def drop_slot_row(self, job_id: JobId) -> None:
        await self._write([_delete("slots", f"'{job_id}'")])

    async def drop_active_key(self, key: str) -> None:
        await self._write([f"DELETE FROM {{0}}.keys WHERE scope = 'active' AND key = '{key}'"])

    async def retarget_reservation(self, reservation_id: ReservationId, job_id: JobId) -> None:
        target = f"SET job = '{job_id}' WHERE id = '{reservation_id}'"
        await self._write([f"UPDATE {{0}}.reservations {target}"])

    async def replace_params(self, job_id: JobId, params: str) -> None:
        text = params.replace("{", "{{").replace("}", "}}")
        await self._write([f"UPDATE {{0}}.jobs SET params = '{text}' WHERE id = '{job_id}'"])

    async def _write(self, statements: Sequence[str]) -> None:
        await _write(self._address, statements)


async def _write(address: PostgresUrl, statements: Sequence[str]) -> None:
    connection = await asyncpg.connect(address.dsn)
    try:
        await _write_on(connection, address.schema, statements)
    finally:
        await connection.close()


async def _write_on(connection: asyncpg.Connection, schema: str, statements: Sequence[str]) -> None:
    script = [statement.format(f'"{schema}"') for statement in statements]
    without_triggers = "SET LOCAL session_replication_role = replica"
    await connection.execute("; ".join(["BEGIN", without_triggers, *script, "COMMIT"]))


def _delete(table: str, job: str) -> str:
    return f"DELETE FROM {{0}}.{table} WHERE job = {job}"
