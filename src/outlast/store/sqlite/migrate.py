"""Brings a file to the schema this code knows: numbered steps, forward only, all or nothing."""

import sqlite3
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from time import monotonic, sleep

from outlast.errors import ForeignStore, SchemaTooNew
from outlast.store.sqlite.connection import translate
from outlast.store.sqlite.statements import Probe, run


@cache
def migrations() -> Mapping[int, str]:
    """The steps by number, as in `0001_initial.sql`."""
    folder = resources.files(__package__) / "migrations"
    scripts = {file.name: file for file in folder.iterdir() if file.name.endswith(".sql")}
    return {int(name[:4]): scripts[name].read_text(encoding="utf-8") for name in sorted(scripts)}


def migrate(connection: sqlite3.Connection, path: Path, *, boot: str, probe: Probe | None) -> None:
    """Create or upgrade our tables in one transaction; killed half-way, nothing has happened."""
    cursor = connection.cursor()
    run(cursor, "unit_of_work.begin", probe)
    try:
        _upgrade(cursor, path, boot, probe)
        _note_restart(cursor, boot, probe)
        if run(cursor, "schema.has_statistics", probe).fetchone()[0]:
            run(cursor, "schema.drop_statistics", probe)
    except BaseException:
        connection.rollback()
        raise
    run(cursor, "unit_of_work.commit", probe)


def write_ahead(connection: sqlite3.Connection, path: Path, *, busy: float) -> None:
    """Switch the file to write-ahead logging, waiting for whoever uses it otherwise."""
    until = monotonic() + busy
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # SQLite does not wait by itself here, and nobody tells when the others are done.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or monotonic() > until:
                raise translate(error, path) from error
            sleep(0.01)
        else:
            return


def require_holdfast_schema(connection: sqlite3.Connection, path: Path, *, adopt: bool) -> None:
    """Before anything is written: not even the journal mode of a file that is not for us."""
    cursor = connection.cursor()
    # In this order: another process may make our tables between the two looks.
    empty = run(cursor, "schema.is_empty").fetchone()[0]
    ours = run(cursor, "schema.is_ours").fetchone()[0]
    if not (ours or empty or adopt):
        raise ForeignStore(
            f"{path} is a database of something else and has no Outlast tables; choose another "
            "file, or add ?adopt=true to the address to create them in it, beside the others"
        )
    if ours:
        _require_known(run(cursor, "schema.version").fetchone()[0], path)


def _require_known(version: int, path: Path) -> None:
    newest = max(migrations())
    if version > newest:
        raise SchemaTooNew(
            f"{path} has schema {version}, this Outlast knows up to {newest}; upgrade Outlast"
        )


def _upgrade(cursor: sqlite3.Cursor, path: Path, boot: str, probe: Probe | None) -> None:
    if not run(cursor, "schema.is_ours", probe).fetchone()[0]:
        run(cursor, "schema.create_meta", probe)
        run(cursor, "schema.init_meta", probe, boot=boot)
    version = run(cursor, "schema.version", probe).fetchone()[0]
    _require_known(version, path)
    run(cursor, "schema.set_version", probe, version=version)  # a file that is read-only says so
    for number, script in migrations().items():
        if number > version:
            _step(cursor, script, f"migration.{number:04}", probe)
            run(cursor, "schema.set_version", probe, version=number)


def _step(cursor: sqlite3.Cursor, script: str, name: str, probe: Probe | None) -> None:
    """Run a script statement by statement: executescript would commit what is under way."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(statement):
            if probe is not None:
                probe(name, False)
            cursor.execute(statement)
            statement = ""


def _note_restart(cursor: sqlite3.Cursor, boot: str, probe: Probe | None) -> None:
    if not run(cursor, "schema.same_boot", probe, boot=boot).fetchone()[0]:
        run(cursor, "schema.lapse_all", probe)
        run(cursor, "schema.lapse_workers", probe)
        run(cursor, "schema.lapse_reservations", probe)
        run(cursor, "schema.set_boot", probe, boot=boot)
