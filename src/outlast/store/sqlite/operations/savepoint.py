"""One item of a batch at a time, under a savepoint: a bad one never sinks its neighbours."""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from outlast.store.sqlite.writer import WriteTransaction

T = TypeVar("T")


def in_savepoint(work: WriteTransaction, step: Callable[[], T]) -> T | str:
    """Do it under a savepoint of its own; why the database refused it, if it did."""
    work.run("savepoint.save")
    try:
        done: T | str = step()
    except (sqlite3.IntegrityError, ValueError, OverflowError) as error:
        work.run("savepoint.undo")
        done = _why(error)
    work.run("savepoint.keep")
    return done


_REFUSALS = {
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


def _why(error: Exception) -> str:
    text = str(error)
    known = (why for name, why in _REFUSALS.items() if text.endswith(f": {name}"))
    return next(known, text)
