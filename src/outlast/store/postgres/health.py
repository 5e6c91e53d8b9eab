"""Health warnings about the server, each with its remedy."""

from collections.abc import Iterator
from typing import Final

from outlast.store.postgres.unit_of_work import Row

LONG_TRANSACTION_S: Final = 60
"""Seconds after which an open transaction is reported."""

MANY_WAITING_COMMITS: Final = 3
"""Number of commits waiting for NOTIFY at one moment that is reported."""

READ_COMMITTED: Final = "read committed"

QUEUE_USAGE_LIMIT: Final = 0.5
"""Share of the notification queue in use that is reported."""


def server_warnings(row: Row) -> Iterator[str]:
    """Yield warnings about the settings of the server, from the row of `health.server`."""
    standby, flushes, waits, vacuums, without, queue, isolation = row
    if standby:
        yield "this is a standby: nothing can be written; name the primary in the URL"
    if not flushes:
        yield (
            "fsync is off: a power cut loses acknowledged jobs, and perhaps the database; set "
            "fsync = on"
        )
    if not waits:
        yield (
            "synchronous_commit is off: a crash of the server loses jobs it had acknowledged; set "
            "synchronous_commit = on"
        )
    if not vacuums or without:
        yield (
            "autovacuum is off: the tables grow without end and claims get slower; set autovacuum "
            "= on and track_counts = on, and no autovacuum_enabled=false on our tables"
        )
    if queue > QUEUE_USAGE_LIMIT:
        yield (
            f"the queue of notifications is {queue:.0%} full: a session listens and never "
            "reads; find it in pg_stat_activity and end it"
        )
    if isolation != READ_COMMITTED:
        yield (
            f"default_transaction_isolation is {isolation}, and ?pooler=true sends no settings of "
            "its own: claims and renewals conflict and are repeated; run ALTER ROLE CURRENT_USER "
            "SET default_transaction_isolation = 'read committed'"
        )


def vacuum_blocker_warning(row: Row) -> str:
    """Return the warning about a session, transaction or slot that blocks vacuum."""
    kind, name, user, program, state, seconds = row
    if kind == "prepared":
        return (
            f"prepared transaction {name!r} of {user} is open for {seconds:,} s and blocks "
            f"vacuum; COMMIT PREPARED or ROLLBACK PREPARED '{name}'"
        )
    if kind == "slot":
        return (
            f"replication slot {name} has no reader and blocks vacuum; start its reader, or "
            f"SELECT pg_drop_replication_slot('{name}')"
        )
    who = f"session {name} of {user}" + (f" ({program})" if program else "")
    return (
        f"{who} is {state} in a transaction open for {seconds:,} s and blocks vacuum; let it "
        f"end, or SELECT pg_terminate_backend({name})"
    )


def notify_warnings(waiting: int) -> Iterator[str]:
    """Yield a warning if many commits wait for NOTIFY."""
    if waiting >= MANY_WAITING_COMMITS:
        yield (
            f"{waiting} commits wait for NOTIFY, which goes one at a time; add in larger batches, "
            "or write ?notify=false"
        )


def lock_warnings(lost: list[str]) -> Iterator[str]:
    """Yield a warning for each lost lock."""
    for name in lost:
        yield f"the lock {name} is held by another process; stop this process or the other one"
