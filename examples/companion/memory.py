"""The database of the companion: its users and the summaries it has sent."""

import json
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

_FILE: Final = Path(__file__).with_name("memory.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user as of the last sync; `syncs` counts the syncs with a new token."""

    user_id: str
    name: str
    notes: tuple[str, ...]
    synced_at: datetime
    token: str
    syncs: int


def _now() -> datetime:
    return datetime.now(UTC)


class Memory:
    """A SQLite file with idempotent writes; threads and processes may share it."""

    def __init__(self, path: Path, now: Callable[[], datetime] = _now) -> None:
        self._path = path
        self._now = now
        self._sql = _statements()

    def sync(self, user_id: str, *, name: str, notes: Sequence[str], token: str) -> bool:
        """Store the data of a user; return False, and change nothing, if the token is known."""
        given = {"user_id": user_id, "name": name, "notes": json.dumps(notes), "token": token}
        return self._write("sync", given)

    def user(self, user_id: str) -> User | None:
        row = self._row("user", user_id=user_id)
        if row is None:
            return None
        at, notes = datetime.fromisoformat(row["synced_at"]), tuple(json.loads(row["notes"]))
        return User(**{**row, "synced_at": at, "notes": notes})

    def summary_sent_at(self, user_id: str, day: date) -> datetime | None:
        """Return when the summary of that day was sent, or None."""
        row = self._row("sent", user_id=user_id, day=day.isoformat())
        return None if row is None else datetime.fromisoformat(row["summary_sent_at"])

    def note_sent(self, user_id: str, day: date, *, token: str) -> bool:
        """Record that the summary of that day was sent; return False if it was recorded before."""
        return self._write(
            "note_sent", {"user_id": user_id, "day": day.isoformat(), "token": token}
        )

    def _write(self, name: str, given: dict[str, Any]) -> bool:
        with closing(self._connect()) as connection, connection:
            now = self._now().isoformat()
            return connection.execute(self._sql[name], {**given, "now": now}).rowcount == 1

    def _row(self, name: str, **given: Any) -> dict[str, Any] | None:
        with closing(self._connect()) as connection:
            row = connection.execute(self._sql[name], given).fetchone()
            return None if row is None else dict(row)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=30)
        connection.row_factory = sqlite3.Row
        for table in ("users", "daily_summaries"):
            connection.execute(self._sql[table])
        return connection


def _statements() -> dict[str, str]:
    _, *parts = re.split(r"^-- @(\w+)\n", _FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))
