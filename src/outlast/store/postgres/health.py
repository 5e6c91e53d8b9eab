"""What an operator of the server should worry about, each with what to do."""

from collections.abc import Iterator
from typing import Final

from outlast.store.postgres.unit_of_work import Row

LONG: Final = 60
"""Seconds from which on an open transaction is worth a word."""

MANY: Final = 3
"""Commits that wait for NOTIFY at one moment, from which on that is too many."""

FULL: Final = 0.5


def of_server(row: Row) -> Iterator[str]:
    """From how the server is set."""
    standby, flushes, waits, vacuums, without, queue = row
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
    if queue > FULL:
        yield (
            f"the queue of notifications is {queue:.0%} full: some session listens and never "
            "reads; find it in pg_stat_activity and end it"
        )


def vacuum_blocker_warning(row: Row) -> str:
    """From whoever keeps vacuum back."""
    kind, name, user, program, state, seconds = row
    if kind == "prepared":
        return (
            f"prepared transaction {name!r} of {user} is open for {seconds:,} s and holds vacuum "
            f"back; COMMIT PREPARED or ROLLBACK PREPARED '{name}'"
        )
    if kind == "slot":
        return (
            f"replication slot {name} has no reader and holds vacuum back; start its reader, or "
            f"SELECT pg_drop_replication_slot('{name}')"
        )
    who = f"session {name} of {user}" + (f" ({program})" if program else "")
    return (
        f"{who} is {state} in a transaction open for {seconds:,} s and holds vacuum back; let it "
        f"end, or SELECT pg_terminate_backend({name})"
    )


def of_commits(waiting: int) -> Iterator[str]:
    if waiting >= MANY:
        yield (
            f"{waiting} commits wait for NOTIFY, which goes one at a time; add in larger batches, "
            "or write ?notify=false"
        )


def of_locks(lost: list[str]) -> Iterator[str]:
    for name in lost:
        yield f"the lock {name} is held by somebody else; stop this process or that one"
