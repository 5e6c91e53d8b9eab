"""Schema migrations: numbered scripts, forward only, all in one transaction."""

import sqlite3
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from outlast.errors import ForeignStore, SchemaTooNew
from outlast.store.sql_files import Probe
from outlast.store.sqlite.connection import translate
from outlast.store.sqlite.statements import run
from outlast.store.sqlite.write_queue import WriteTurn

_RETRY_INTERVAL_S: Final = 0.01


@cache
def migrations() -> Mapping[int, str]:
    """Return the scripts by number, as in `0001_initial.sql`."""
    folder = resources.files(__package__) / "migrations"
    scripts = {file.name: file for file in folder.iterdir() if file.name.endswith(".sql")}
    return {int(name[:4]): scripts[name].read_text(encoding="utf-8") for name in sorted(scripts)}


def migrate(
    connection: sqlite3.Connection, path: Path, *, boot: str, turn: WriteTurn, probe: Probe | None
) -> None:
    """Create or upgrade the tables, and expire all leases after a restart of the machine.

    Atomic: one transaction holds everything. Raises SchemaTooNew for a schema of a later release.
    """
    cursor = connection.cursor()
    try:
        turn.begin(lambda: run(cursor, "unit_of_work.begin", probe))
        _upgrade(cursor, path, boot, probe)
        _expire_after_restart(cursor, boot, probe)
        if run(cursor, "schema.has_statistics", probe).fetchone()[0]:
            run(cursor, "schema.drop_statistics", probe)
        run(cursor, "unit_of_work.commit", probe)
    except BaseException:
        connection.rollback()
        raise
    finally:
        turn.close()


def enable_write_ahead_log(connection: sqlite3.Connection, path: Path, *, busy: float) -> None:
    """Switch the file to write-ahead logging; retry up to `busy` seconds while it is locked.

    Raises StoreBusy after that.
    """
    deadline = monotonic() + busy
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # SQLite's own lock timeout does not cover this statement.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                raise translate(error, path) from error
            sleep(_RETRY_INTERVAL_S)
        else:
            return


def require_outlast_schema(connection: sqlite3.Connection, path: Path, *, adopt: bool) -> None:
    """Check the file before anything is written to it, its journal mode included.

    Raises ForeignStore for a database of another application unless `adopt`, and SchemaTooNew for
    a schema of a later release.
    """
    cursor = connection.cursor()
    # In this order, because another process may create the tables between the two reads.
    is_empty = run(cursor, "schema.is_empty").fetchone()[0]
    has_meta = run(cursor, "schema.has_meta").fetchone()[0]
    if not (has_meta or is_empty or adopt):
        raise ForeignStore(
            f"{path} is a database of another application and has no Outlast tables; choose "
            "another file, or add ?adopt=true to the URL to create them in it, beside the others"
        )
    if has_meta:
        _require_known(run(cursor, "schema.version").fetchone()[0], path)


def _require_known(version: int, path: Path) -> None:
    newest = max(migrations())
    if version > newest:
        raise SchemaTooNew(
            f"{path} has schema {version}, this Outlast knows up to {newest}; upgrade Outlast"
        )


def _upgrade(cursor: sqlite3.Cursor, path: Path, boot: str, probe: Probe | None) -> None:
    if not run(cursor, "schema.has_meta", probe).fetchone()[0]:
        run(cursor, "schema.create_meta", probe)
        run(cursor, "schema.init_meta", probe, boot=boot)
    version = run(cursor, "schema.version", probe).fetchone()[0]
    _require_known(version, path)
    run(cursor, "schema.set_version", probe, version=version)  # fails now if the file is read-only
    for number, script in migrations().items():
        if number > version:
            _run_script(cursor, script, f"migration.{number:04}", probe)
            run(cursor, "schema.set_version", probe, version=number)


def _run_script(cursor: sqlite3.Cursor, script: str, name: str, probe: Probe | None) -> None:
    """Run a script statement by statement: executescript would commit the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(statement):
            if probe is not None:
                probe(name, False)
            cursor.execute(statement)
            statement = ""


def _expire_after_restart(cursor: sqlite3.Cursor, boot: str, probe: Probe | None) -> None:
    if not run(cursor, "schema.same_boot", probe, boot=boot).fetchone()[0]:
        run(cursor, "schema.expire_leases", probe)
        run(cursor, "schema.expire_workers", probe)
        run(cursor, "schema.expire_reservations", probe)
        run(cursor, "schema.set_boot", probe, boot=boot)
