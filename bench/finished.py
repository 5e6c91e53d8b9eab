"""Write a long history of finished jobs with their runs directly into the tables."""

import sqlite3
from pathlib import Path

CHUNK = 100_000

# Rows are inserted directly in large sets: `add`, `claim` and `apply` would take minutes for a
# million jobs, and only the later claims are measured. The rows are those of a succeeded job; the
# ids sort before every real one, like old ids.
WORKER = """
INSERT INTO outlast_workers (id, instance_id, boot_id)
VALUES (1, 'history', 'history')
ON CONFLICT DO NOTHING
"""
JOBS = """
WITH RECURSIVE numbers (n) AS (
  SELECT :first
  UNION ALL
  SELECT n + 1 FROM numbers WHERE n < :last
)
INSERT INTO outlast_jobs (
  seq, id, type, name, params, queue, delivery, max_attempts, created_at
)
SELECT
  n, printf('00000000-0000-7000-8000-%012x', n), 'noop', 'noop', '{"sent":0.0}', 'default',
  'lease', 5, n
FROM numbers
"""
RUNS = """
INSERT INTO outlast_runs (job, token, run_id, status, worker, started_at, finished_at)
SELECT seq, 1, printf('00000000-0000-7000-9000-%012x', seq), 'succeeded', 1, seq, seq
FROM outlast_jobs
WHERE seq BETWEEN :first AND :last
"""
ENDS = """
INSERT INTO outlast_ends (
  job, state, at, queue, priority, position, available_at, token, failures, losses
)
SELECT seq, 'succeeded', seq, 'default', 0, 0, seq, 1, 0, 0
FROM outlast_jobs
WHERE seq BETWEEN :first AND :last
"""


def add_finished(path: Path, jobs: int) -> None:
    """Put that many ended jobs into a file that has none yet."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(WORKER)
        for first in range(1, jobs + 1, CHUNK):
            last = min(first + CHUNK - 1, jobs)
            _add(connection, first, last)
    finally:
        connection.close()


def _add(connection: sqlite3.Connection, first: int, last: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in (JOBS, RUNS, ENDS):
        connection.execute(statement, {"first": first, "last": last})
    connection.execute("COMMIT")
