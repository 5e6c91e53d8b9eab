"""Retention cleanup: delete old rows of the tables on the allow-list, in one transaction."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from .config import ALLOWED, Purgeable
from .desk import Desk, stamp

log = logging.getLogger("daily_brief")


class NotPurgeable(ValueError):
    """A table to purge is not on the allow-list."""


def cleanup(
    desk: Desk, tables: Sequence[Purgeable], keep: timedelta, now: datetime
) -> Mapping[str, int]:
    """Delete rows fetched longer than `keep` ago; return the number per table.

    Never what a published brief refers to, and never from another table: NotPurgeable before
    anything is deleted. All of it happens, or nothing. Safe to repeat.
    """
    wrong = [table for table in tables if table not in ALLOWED]
    if wrong:
        raise NotPurgeable(f"{wrong[0]} may not be purged; the allow-list is {', '.join(ALLOWED)}")
    before = stamp(now - keep)
    with desk.writing() as tx:
        deleted: dict[str, int] = {
            table: tx.run(f"purge_{table}", before=before).rowcount
            for table in ALLOWED
            if table in tables
        }
        tx.run("recount")
    for table, count in deleted.items():
        facts = {"event": "retention_deleted", "table": table, "deleted": count}
        log.info("retention_deleted table=%s deleted=%d", table, count, extra={"facts": facts})
    return deleted
