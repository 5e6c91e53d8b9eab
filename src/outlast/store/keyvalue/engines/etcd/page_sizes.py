"""Pages by bytes: how many records one answer should hold."""

from collections.abc import Mapping, Sequence
from typing import Final

MOST_RECORDS: Final = 1_000
FIRST: Final = 100
"""Records of the first page, when the size of the records is unknown."""

PAGE_BYTES: Final = 4_000_000
"""Bytes of an answer that pages aim at: a third of a second at 100 Mbit/s."""


class PageSizes:
    """Records per page for each kind of part, by the size of those read last."""

    def __init__(self) -> None:
        self._record_bytes: dict[str, int] = {}

    def of(self, part: str, *, unknown: int = FIRST) -> int:
        """Return how many records of a part to ask for; `unknown` if none was read yet."""
        size = self._record_bytes.get(_kind(part))
        if size is None:
            return unknown
        return max(1, min(MOST_RECORDS, PAGE_BYTES // max(1, size)))

    def note(self, part: str, kvs: Sequence[Mapping[str, str]]) -> None:
        """Remember the mean size of the records of an answer, as etcd encodes it."""
        if kvs:
            total = sum(len(kv["key"]) + len(kv.get("value", "")) for kv in kvs)
            self._record_bytes[_kind(part)] = total // len(kvs)


def _kind(part: str) -> str:
    """Return what the parts of all queues, jobs or groups have in common."""
    return part.partition("#")[0]
