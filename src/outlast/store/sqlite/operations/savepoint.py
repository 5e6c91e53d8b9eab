"""One item of a batch under a savepoint, so that an invalid item does not undo the others."""

import sqlite3
from collections.abc import Callable
from typing import Final, TypeVar

from outlast.store.sqlite.writer import WriteTransaction

T = TypeVar("T")

_CONSTRAINT_TEXTS: Final = {
    "id_shape": "its id is not a UUID",
    "type_name": "its type is not a name",
    "job_name": "its name is not a name",
    "queue_name": "its queue is not a name",
    "series_name": "its slot's series is not a name",
    "known_delivery": "its delivery is not one a store can keep",
    "params_size": "its params are over 256 KiB",
    "params_json": "its params are not JSON",
    "attempts": "its max_attempts is out of bounds",
    "priority_range": "its priority is out of bounds",
    "key_size": "its key is empty or too long",
    "bucket_size": "its bucket is too long",
}


def in_savepoint(tx: WriteTransaction, step: Callable[[], T]) -> T | str:
    """Run `step` under a savepoint.

    Returns its result. If the database refuses what it writes, the step is rolled back and the
    reason comes back as text.
    """
    tx.run("savepoint.save")
    try:
        done: T | str = step()
    except (sqlite3.IntegrityError, ValueError, OverflowError) as error:
        tx.run("savepoint.undo")
        done = _refusal_text(error)
    tx.run("savepoint.keep")
    return done


def _refusal_text(error: Exception) -> str:
    text = str(error)
    known = (why for name, why in _CONSTRAINT_TEXTS.items() if text.endswith(f": {name}"))
    return next(known, text)
