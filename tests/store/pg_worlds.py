"""Crowds in a PostgreSQL schema, written by hand: thousands of rows in a moment."""

from typing import Any, Final

JOB: Final = "00000000-0000-7000-b000-000000000001"
"""The first of the jobs that have ended."""

GROUP: Final = "00000000-0000-7000-9000-000000000001"
RESERVATION: Final = "00000000-0000-7000-a000-000000000001"

_JOBS = """
INSERT INTO {schema}.jobs (
  id, type, name, queue, delivery, params, created_at,
  retry_of, root, member_group_id
)
SELECT
  ('00000000-0000-7000-b000-' || lpad(to_hex(:base + n), 12, '0'))::uuid,
  'type-' || n % 3, 'name-' || n, 'queue-' || n % 5,
  CASE WHEN n % 10 = 0 THEN 'linked' WHEN n % 10 = 1 THEN 'once' ELSE 'lease' END,
  '{{}}', n,
  CASE WHEN :links AND n % 10 = 0 AND n > 10 THEN
    ('00000000-0000-7000-b000-' || lpad(to_hex(:base + n - 10), 12, '0'))::uuid END,
  CASE WHEN :links AND n % 10 = 0 AND n > 10 THEN
    ('00000000-0000-7000-b000-' || lpad(to_hex(:base + 10), 12, '0'))::uuid END,
  CASE WHEN n % 4 = 0 THEN
    ('00000000-0000-7000-9000-' || lpad(to_hex(1 + n % :groups), 12, '0'))::uuid END
FROM generate_series(1, :number) AS n
"""
_ENDS = """
INSERT INTO {schema}.ends (
  job, seq, state, at, queue, priority, position, available_at, token, failures, losses
)
SELECT id, seq, CASE WHEN seq % 20 = 0 THEN 'failed' ELSE 'succeeded' END, created_at, queue, 0, 0,
  created_at, 1, 0, 0
FROM {schema}.jobs AS j
WHERE id > ('00000000-0000-7000-b000-' || lpad(to_hex(:base), 12, '0'))::uuid
"""
_RUNS = """
INSERT INTO {schema}.runs (job, token, run_id, status, worker, started_at, finished_at)
SELECT job, 1, job, 'succeeded', 0, at, at FROM {schema}.ends
"""
_EVENTS = """
INSERT INTO {schema}.events (job, at, kind, token)
SELECT job, at, 'retried', 1 FROM {schema}.ends
"""
_KEYS = """
INSERT INTO {schema}.keys (scope, key, bucket, job)
SELECT CASE WHEN seq % 2 = 0 THEN 'key' ELSE 'active' END, 'key-' || seq, '', id
FROM {schema}.jobs
"""
_SLOTS = """
INSERT INTO {schema}.slots (series, slot_at, outcome, planned, actual, job)
SELECT 'series-' || seq % 7, seq, 'ran', seq, seq, id FROM {schema}.jobs
"""
_WAITING = """
INSERT INTO {schema}.waiting (
  job, seq, state, queue, type, name, delivery, priority, position, available_at, created_at,
  start_deadline, token, failures, losses, member_group_id
)
SELECT id, seq,
  CASE seq % 7 WHEN 0 THEN 'scheduled' WHEN 1 THEN 'blocked' WHEN 2 THEN 'retry_wait'
    ELSE 'queued' END,
  queue, type, name, delivery, seq % 3, CASE WHEN seq % 2 = 0 THEN seq * 100 ELSE 0 END,
  CASE WHEN seq % 7 IN (0, 2) THEN 9000000000000000 + seq ELSE created_at END, created_at,
  CASE WHEN seq % 11 = 0 THEN 9000000000000000 END, 0, 0, 0, member_group_id
FROM {schema}.jobs
WHERE id > ('00000000-0000-7000-b000-' || lpad(to_hex(:base), 12, '0'))::uuid
"""
_OPEN = """
INSERT INTO {schema}.open_runs (
  job, seq, run_id, token, worker, started_at, lease_until, queue, name, delivery, priority,
  position, available_at, failures, losses, member_group_id, active, plain
)
SELECT id, seq, id, 1, 0, created_at, 9000000000000000, queue, name, delivery, 0, 0, created_at, 0,
  0, member_group_id, false, true
FROM {schema}.jobs
WHERE id > ('00000000-0000-7000-b000-' || lpad(to_hex(:base), 12, '0'))::uuid
"""
_GROUPS = """
INSERT INTO {schema}.groups (
  id, mode, on_failure, total, created_at, sealed_at, closing, swept
)
SELECT ('00000000-0000-7000-9000-' || lpad(to_hex(n), 12, '0'))::uuid,
  CASE WHEN n % 2 = 0 THEN 'parallel' ELSE 'sequential' END, 'stop', 10, n,
  CASE WHEN n % 5 > 0 THEN n END, CASE WHEN n % 3 = 0 THEN 'stop' END, n % 9 = 0
FROM generate_series(1, :groups) AS n
"""
_RESERVATIONS = """
INSERT INTO {schema}.reservations (
  id, queue, job, caller, request, status, reserved_at, expires_at, span, until, ended_at
)
SELECT ('00000000-0000-7000-a000-' || lpad(to_hex(n), 12, '0'))::uuid,
  'queue-' || n, ('00000000-0000-7000-b000-' || lpad(to_hex(n), 12, '0'))::uuid, 'somebody', 'it',
  CASE WHEN n % 200 = 1 THEN 'active' ELSE 'released' END, n, n, 1, n,
  CASE WHEN n % 200 <> 1 THEN n END
FROM generate_series(1, :number) AS n
"""
_SCHEDULES = """
INSERT INTO {schema}.schedules (
  id, name, plan, enabled, created_at, updated_at, next_slot, next_trigger_at
)
SELECT ('00000000-0000-7000-c000-' || lpad(to_hex(n), 12, '0'))::uuid, 'schedule-' || n, '{{}}',
  n % 10 > 0, n, n, CASE WHEN n % 7 > 0 THEN n END, CASE WHEN n % 7 > 0 THEN n END
FROM generate_series(1, :number) AS n
"""
_QUEUES = """
INSERT INTO {schema}.queues (name, ordering, gap, concurrency)
SELECT 'queue-' || n, CASE WHEN n = 0 THEN 'position' ELSE 'scheduled' END, 100,
  CASE WHEN n = 1 THEN 1 END
FROM generate_series(0, 4) AS n
"""


_LEFT_ALONE = """
DO $$
DECLARE
  each record;
BEGIN
  FOR each IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' LOOP
    EXECUTE format('ALTER TABLE {schema}.%I SET (autovacuum_enabled = off)', each.tablename);
  END LOOP;
END $$
"""


_LABELS = """INSERT INTO {schema}.labels (label, seq, job)
SELECT 'tag:' || seq % 7, seq, id FROM {schema}.jobs"""


async def leave_alone(connection: Any, schema: str) -> None:
    """The server's own hand stays off: its statistics change plans, its looks keep dead rows."""
    await connection.execute(_LEFT_ALONE.format(schema=schema))


async def crowd(
    connection: Any, schema: str, *, done: int, waiting: int, running: int, groups: int = 50
) -> None:
    """So many jobs that have ended, wait and run, with all that belongs to them."""
    fill = _Fill(connection, schema, groups)
    await fill(_QUEUES)
    await fill(_GROUPS)
    await fill(_JOBS, base=0, number=done, links=True)
    await fill(_ENDS, base=0)
    await fill(_RUNS)
    await fill(_EVENTS)
    await fill(_KEYS)
    await fill(_SLOTS)
    await fill(_SCHEDULES, number=min(done, 1000))
    await fill(_RESERVATIONS, number=min(done, 1000))
    await fill(_JOBS, base=done, number=waiting, links=False)
    await fill(_WAITING, base=done)
    await fill(_JOBS, base=done + waiting, number=running, links=False)
    await fill(_OPEN, base=done + waiting)
    await fill(_LABELS)


class _Fill:
    """Numbers written into a statement: these are all ours."""

    def __init__(self, connection: Any, schema: str, groups: int) -> None:
        self._connection = connection
        self._schema = schema
        self._groups = groups

    async def __call__(self, text: str, **values: Any) -> None:
        text = text.format(schema=f'"{self._schema}"')
        for name, value in {"groups": self._groups, **values}.items():
            text = text.replace(f":{name}", str(value).lower())
        await self._connection.execute(text)
