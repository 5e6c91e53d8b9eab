"""Bodies: long texts of a job and its runs, each in a record of its own, written once.

A claim, a renewal or an end writes the whole record of a job. So a record holds short texts
itself, and of a long one the key of its body. That key contains the text's digest: a text that
changes gets another body, and a body never changes.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import DamagedValue, Key, Value
from outlast.store.keyvalue.unit_of_work import ReadConflict, UnitOfWork

MAX_INLINE: Final = 2 * 1024
"""Bytes of the longest text that stays in its record."""

NO_RUN: Final = 0
"""Token in the key of a body that belongs to the job itself: its params."""

LOST: Final = ""
"""Stands for the text of a body that was deleted or damaged by hand; `verify` names it."""

_TEXT: Final = "text"


class BodyReference(str):
    """Stands for a text that was not read: the sort key of the body that holds it."""

    __slots__ = ()

    @property
    def key(self) -> Key:
        """Key of the body."""
        return key_layout.body_key(self)


def is_long(text: str) -> bool:
    """Return True if the text goes into a body."""
    return len(text) > MAX_INLINE or len(text.encode(errors="replace")) > MAX_INLINE


def refer(job_id: str, token: int, text: str | None) -> str | None:
    """Return the reference to the body of a long text; a short text, or None, as it is."""
    if text is None or isinstance(text, BodyReference) or not is_long(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return BodyReference(f"{job_id}#{key_layout.number(token)}#{digest}")


def save(unit: UnitOfWork, job_id: str, token: int, text: str | None) -> None:
    """Write the body of a long text; a reference has its body already."""
    reference = refer(job_id, token, text)
    if isinstance(reference, BodyReference) and reference is not text:
        unit.put(reference.key, {_TEXT: text})


def delete(unit: UnitOfWork, job_id: str, *texts: str | None) -> None:
    """Delete the bodies of these texts that belong to the job."""
    for text in texts:
        if isinstance(text, BodyReference) and text.startswith(f"{job_id}#"):
            unit.delete(text.key)


def fields(name: str, text: str | None) -> dict[str, Any]:
    """Return the fields of a record that hold a text, or refer to its body."""
    if isinstance(text, BodyReference):
        return {f"{name}_pk": text.key.part, f"{name}_sk": str(text)}
    return {name: text}


def text_of(value: Value, name: str) -> Any:
    """Return the text that a record holds under that name, or the reference to its body."""
    if name not in value and f"{name}_sk" in value:
        return BodyReference(value[f"{name}_sk"])
    return value.get(name)


def text_in(body: Value | None) -> str:
    """Return the text of a body."""
    return LOST if isinstance(body, DamagedValue | None) else str(body[_TEXT])


async def read(
    unit: UnitOfWork, wanted: Iterable[tuple[str | None, Key]]
) -> Callable[[str | None], str | None]:
    """Read bodies in one request; the function returned has the text of each reference.

    `wanted` has texts, each with the record that holds it. Raises ReadConflict if a body is gone
    because its record has another text by now. Otherwise a missing body is LOST.
    """
    holders = {each: key for each, key in wanted if isinstance(each, BodyReference)}
    await unit.fetch([each.key for each in holders])
    found = {each: await unit.get(each.key) for each in holders}
    await _require_still_referred(
        unit, {each: holders[each] for each, value in found.items() if value is None}
    )

    def whole(text: str | None) -> str | None:
        return text_in(found[text]) if isinstance(text, BodyReference) else text

    return whole


async def _require_still_referred(unit: UnitOfWork, lost: Mapping[BodyReference, Key]) -> None:
    holders = await unit.engine.get(list(lost.values())) if lost else []
    for reference, holder in zip(lost, holders, strict=True):
        if holder is None or holder.damage or reference not in holder.value.values():
            raise ReadConflict
