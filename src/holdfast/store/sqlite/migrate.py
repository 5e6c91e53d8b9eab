"""Brings a file to the schema this code knows: numbered steps, forward only, all or nothing."""

import sqlite3
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from holdfast.errors import NotOurStore, SchemaTooNew
from holdfast.store.sqlite.statements import Probe, run


@cache
def migrations() -> Mapping[int, str]:
    """The steps by number, as in `0001_initial.sql`."""
    folder = resources.files(__package__) / "migrations"
    scripts = {file.name: file for file in folder.iterdir() if file.name.endswith(".sql")}
    return {int(name[:4]): scripts[name].read_text(encoding="utf-8") for name in sorted(scripts)}


def migrate(
    connection: sqlite3.Connection, path: Path, *, boot: str, adopt: bool, probe: Probe | None
) -> None:
    """Create or upgrade our tables in one transaction; killed half-way, nothing has happened."""
    _require_ours(connection, path, adopt=adopt)
    connection.execute("PRAGMA journal_mode = WAL")
    cursor = connection.cursor()
    run(cursor, "tx.begin", probe)
    try:
        _upgrade(cursor, path, boot, probe)
        _note_restart(cursor, boot, probe)
    except BaseException:
        connection.rollback()
        raise
    run(cursor, "tx.commit", probe)


def _require_ours(connection: sqlite3.Connection, path: Path, *, adopt: bool) -> None:
    cursor = connection.cursor()
    ours = run(cursor, "schema.is_ours").fetchone()[0]
    empty = run(cursor, "schema.is_empty").fetchone()[0]
    if not (ours or empty or adopt):
        raise NotOurStore(
            f"{path} is a database of something else and has no Holdfast tables; choose another "
            "file, or add ?adopt=true to the address to create them in it, beside the others"
        )


def _upgrade(cursor: sqlite3.Cursor, path: Path, boot: str, probe: Probe | None) -> None:
    run(cursor, "schema.create_meta", probe)
    run(cursor, "schema.init_meta", probe, boot=boot)
    version = run(cursor, "schema.version", probe).fetchone()[0]
    newest = max(migrations())
    if version > newest:
        raise SchemaTooNew(
            f"{path} has schema {version}, this Holdfast knows up to {newest}; upgrade Holdfast"
        )
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
        run(cursor, "schema.set_boot", probe, boot=boot)
