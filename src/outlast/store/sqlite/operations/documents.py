"""Swapping records: each compared with the version its writer knows."""

from collections.abc import Sequence

from outlast.core.document import Document, Swap
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite.verbs.footing import require_open_store
from outlast.store.sqlite.writer import WriteTransaction


@require_open_store
def swap(work: WriteTransaction, swaps: Sequence[Swap]) -> list[Document | None]:
    return [
        _delete_record(work, each) if each.value is None else _write_record(work, each)
        for each in swaps
    ]


def _write_record(work: WriteTransaction, swap: Swap) -> Document | None:
    written = work.run(
        "documents.write",
        kind=swap.kind,
        key=swap.key,
        value=swap.value,
        expected=swap.expected,
        now=work.now,
    )
    return _read_record(work, swap) if written.rowcount > 0 else None


def _delete_record(work: WriteTransaction, swap: Swap) -> Document | None:
    there = _read_record(work, swap)
    gone = work.run("documents.delete", kind=swap.kind, key=swap.key, expected=swap.expected)
    return there if gone.rowcount > 0 else None


def _read_record(work: WriteTransaction, swap: Swap) -> Document | None:
    found = work.run("documents.get", kind=swap.kind, key=swap.key).fetchone()
    return None if found is None else job_rows.document(found)
