"""Swapping records: written only by whoever knows the last version."""

from outlast.core.document import Document, Swap
from outlast.store.postgres.unit_of_work import UnitOfWork
from outlast.store.rows import jobs as job_rows


async def swap(work: UnitOfWork, wish: Swap) -> Document | None:
    """The record as written or deleted; None if its version is another one."""
    where = {"kind": wish.kind, "key": wish.key}
    if wish.value is None:
        found = await work.rows("documents.delete", expected=wish.expected, **where)
    elif wish.expected is None:
        found = await work.rows("documents.create", value=wish.value, now=work.now, **where)
    else:
        found = await work.rows(
            "documents.write", value=wish.value, expected=wish.expected, now=work.now, **where
        )
    return job_rows.document(tuple(found[0])) if found else None
