"""Documents: reads, and compare-and-swap by version."""

from collections.abc import Sequence

from outlast.core.document import Document, Swap, check_swap
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite.operations.base import SqliteOperations, require_open_store
from outlast.store.sqlite.writer import WriteTransaction


class SqliteDocumentOperations(SqliteOperations):
    """Small versioned documents."""

    async def document(self, kind: str, key: str) -> Document | None:
        """Return the document, or None."""
        found = await self._reader.rows("documents.get", kind=kind, key=key)
        return job_rows.document(found[0]) if found else None

    async def documents(self, kind: str) -> list[Document]:
        """Return all documents of a kind, by key."""
        found = await self._reader.rows("documents.all", kind=kind)
        return [job_rows.document(row) for row in found]

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Document | None:
        """Write or delete the document if its version is `expected`; None if it is not."""
        request = check_swap(Swap(kind=kind, key=key, expected=expected, value=value))
        swapped: Document | None = (await self._writer.submit(swap, [request]))[0]
        return swapped


@require_open_store
def swap(tx: WriteTransaction, swaps: Sequence[Swap]) -> list[Document | None]:
    """Compare and swap each document in turn."""
    return [
        _delete_document(tx, each) if each.value is None else _write_document(tx, each)
        for each in swaps
    ]


def _write_document(tx: WriteTransaction, swap: Swap) -> Document | None:
    written = tx.run(
        "documents.write",
        kind=swap.kind,
        key=swap.key,
        value=swap.value,
        expected=swap.expected,
        now=tx.now,
    )
    return _read_document(tx, swap) if written.rowcount > 0 else None


def _delete_document(tx: WriteTransaction, swap: Swap) -> Document | None:
    present = _read_document(tx, swap)
    deleted = tx.run("documents.delete", kind=swap.kind, key=swap.key, expected=swap.expected)
    return present if deleted.rowcount > 0 else None


def _read_document(tx: WriteTransaction, swap: Swap) -> Document | None:
    found = tx.run("documents.get", kind=swap.kind, key=swap.key).fetchone()
    return None if found is None else job_rows.document(found)
