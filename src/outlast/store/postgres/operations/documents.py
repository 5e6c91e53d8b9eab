"""Small versioned documents, written by compare-and-swap."""

from functools import partial

from outlast.core.document import Document, Swap, check_swap
from outlast.store.postgres.operations.base import PostgresOperations, require_open_store
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork
from outlast.store.rows import jobs as job_rows


class PostgresDocumentOperations(PostgresOperations):
    """Read and swap documents."""

    async def document(self, kind: str, key: str) -> Document | None:
        """Return a document, or None if there is none."""
        found = await self._pool.rows("documents.get", kind=kind, key=key)
        return job_rows.document(tuple(found[0])) if found else None

    async def documents(self, kind: str) -> list[Document]:
        """Return every document of a kind, by key."""
        found = await self._pool.rows("documents.all", kind=kind)
        return [job_rows.document(tuple(row)) for row in found]

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Document | None:
        """Create, write or delete a document if its version is `expected`.

        Returns the document as written or deleted, or None if the version is another one.
        """
        wanted = check_swap(Swap(kind=kind, key=key, expected=expected, value=value))
        return await self._pool.transact(require_open_store(partial(_swap, wanted=wanted)))


async def _swap(work: PostgresUnitOfWork, wanted: Swap) -> Document | None:
    target = {"kind": wanted.kind, "key": wanted.key}
    if wanted.value is None:
        found = await work.rows("documents.delete", expected=wanted.expected, **target)
    elif wanted.expected is None:
        found = await work.rows("documents.create", value=wanted.value, now=work.now, **target)
    else:
        found = await work.rows(
            "documents.write",
            value=wanted.value,
            expected=wanted.expected,
            now=work.now,
            **target,
        )
    return job_rows.document(tuple(found[0])) if found else None
