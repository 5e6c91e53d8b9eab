"""Log records: chunks of lines, each in a record of its own."""

from collections.abc import Iterable

from outlast.core.run_log import LogChunk, LogWrite
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import StoredItem
from outlast.store.keyvalue.unit_of_work import UnitOfWork


def save(unit: UnitOfWork, job_id: str, token: int, write: LogWrite) -> bool:
    """Write the chunks that can be stored and delete the dropped ones; False if none is stored."""
    chunks = write.storable
    for chunk in chunks:
        put(unit, job_id, token, chunk)
    for first in write.dropped:
        unit.delete(key_layout.log_key(job_id, token, first))
    return bool(chunks)


def put(unit: UnitOfWork, job_id: str, token: int, chunk: LogChunk) -> None:
    """Write one chunk."""
    value = {"job_id": job_id, "token": token, **chunk._asdict()}
    unit.put(key_layout.log_key(job_id, token, chunk.first), value)


def from_records(found: Iterable[StoredItem]) -> list[tuple[int, LogChunk]]:
    """Return the sound chunks, each with the token of its run."""
    values = [entry.value for entry in found if entry.damage is None]
    return [(v["token"], LogChunk(v["first"], v["lines"], v["text"])) for v in values]
