"""Contract: small versioned documents, used by templates and settings."""

from typing import Protocol

from outlast.core.document import Document


class Documents(Protocol):
    """Documents by kind and key, written by compare-and-swap."""

    async def document(self, kind: str, key: str) -> Document | None:
        """Return the document, or None."""
        ...

    async def documents(self, kind: str) -> list[Document]:
        """Return all documents of a kind, by key."""
        ...

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Document | None:
        """Write `value` if the version is `expected`; None as version expects no document.

        Returns the document as written; without a value, the one that was deleted. Returns None
        and writes nothing if the version differs: of concurrent swaps one succeeds.

        Versions rise with every write and no version is used twice in a store, so a document that
        was deleted and created again does not match the old version. `updated_at` rises with
        every write, even when the wall clock is set back.

        Raises InvalidArgument for an invalid kind or key, for text that is not JSON, or over
        256 KiB.
        """
        ...
