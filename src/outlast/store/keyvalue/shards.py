"""Shards: the partition that holds a key, in a store whose jobs are spread over several.

All records of one job have a shard that follows from the job's id or from its number. With one
shard, partitions and parts are the same.
"""

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Key, KeyRange

MAX_SHARDS: Final = 64
"""Shards that a store may have."""

_BY_NUMBER: Final = frozenset(
    {
        key_layout.SEQ,
        key_layout.DUE,
        key_layout.DEADLINE,
        key_layout.ENDED,
        key_layout.STREAM,
        key_layout.EVENT_COUNTER,
        key_layout.GROUP,
    }
)
"""Parts whose sort keys end with the number of a job, an event or a group."""

_PREFIXES: Final = (
    key_layout.READY,
    key_layout.LATER,
    key_layout.OPEN,
    key_layout.member_part(""),
    key_layout.BODY,
)
"""Beginnings of further parts: of each queue, group or kind of body."""

_BEFORE_NUMBER: Final = frozenset(
    {key_layout.RUN, key_layout.ARTIFACTS, key_layout.LOG, key_layout.EVENT}
)
"""Parts whose sort keys are a job's id and a number."""

_BY_TEXT: Final = frozenset(
    {
        key_layout.ACTIVE,
        key_layout.WINDOW_END,
        key_layout.SLOT,
        key_layout.ONCE,
        key_layout.EARLY_FIELDS,
    }
)
_SPREAD: Final = _BY_NUMBER | _BEFORE_NUMBER | _BY_TEXT | {key_layout.JOB}


def of_text(text: str, shards: int) -> int:
    """Return the shard of a job's id, or of any text."""
    return crc32(text.encode()) % shards


@dataclass(frozen=True, slots=True)
class Shards:
    """Partitions of a store with `count` shards."""

    count: int

    def stored(self, key: Key) -> Key:
        """Return the key under which a record is stored."""
        return Key(_partition(key.part, self._of(key)), key.sort) if _is_spread(key.part) else key

    def plain(self, key: Key) -> Key:
        """Return the key of a stored record as operations know it."""
        part, _, shard = key.part.rpartition("~")
        return Key(part, key.sort) if shard and _is_spread(part) else key

    def ranges(self, span: KeyRange) -> list[KeyRange]:
        """Return the key range in every partition that may hold keys of it."""
        if not _is_spread(span.part):
            return [span]
        job_id = span.start.removesuffix("#")
        if span.part in _BEFORE_NUMBER and span == key_layout.of_job(span.part, job_id):
            own = range(shard := of_text(job_id, self.count), shard + 1)
        else:
            own = range(self.count)
        return [KeyRange(_partition(span.part, shard), span.start, span.end) for shard in own]

    def _of(self, key: Key) -> int:
        if key.part == key_layout.JOB:
            return of_text(key.sort.rpartition("#")[2], self.count)
        if key.part in _BEFORE_NUMBER:
            return of_text(key.sort.rpartition("#")[0], self.count)
        if key.part.startswith(key_layout.BODY):
            return of_text(key.sort.rsplit("#", 2)[0], self.count)
        number = None if key.part in _BY_TEXT else key_layout.ending_number(key.sort)
        return of_text(key.sort, self.count) if number is None else number % self.count


def _is_spread(part: str) -> bool:
    return part in _SPREAD or part.startswith(_PREFIXES)


def _partition(part: str, shard: int) -> str:
    return f"{part}~{shard:02}"
