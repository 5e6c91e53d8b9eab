"""The contract of records: small documents that templates and settings share."""

from typing import Protocol

from outlast.core.document import Document


class Documents(Protocol):
    """Documents by kind and key, each written only by whoever knows its last version."""

    async def document(self, kind: str, key: str) -> Document | None:
        """The record as it stands; None if there is none."""
        ...

    async def documents(self, kind: str) -> list[Document]:
        """All of one kind, by key."""
        ...

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Document | None:
        """Write `value` if the record's version is `expected`; None: if there is no record.

        Answers the record as written; without a value, the one that is gone. None means that
        somebody was quicker, and nothing was written. Of many at once one wins.

        Versions rise with every write and none is ever given twice in a store, so a record that
        was deleted and created anew does not fit what was expected of the old one. While a record
        is there, `updated_at` rises with every write, also when the wall clock was set back.
        InvalidArgument if it is no name, no key, no JSON, or over 256 KiB.
        """
        ...
