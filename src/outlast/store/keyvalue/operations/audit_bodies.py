"""Audit reads of bodies: those that are missing, and those that nothing refers to."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from outlast.core.audit.model import DanglingKind, DanglingRecord
from outlast.core.run import RunRecord
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext, pages
from outlast.store.keyvalue.engine import Key, StoredItem
from outlast.store.keyvalue.repositories import bodies, runs
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories.bodies import BodyReference
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

PAGE: Final = 50
"""Bodies per page: each may have 256 KiB."""


@dataclass(frozen=True, slots=True)
class JobBodies:
    """Params of a job, None if their body is missing; and the missing bodies of job and runs.

    A damaged body counts as missing.
    """

    params: str | None
    missing: tuple[str, ...]


async def read(
    unit: UnitOfWork, page: Sequence[JobRecord], closed: Sequence[Sequence[RunRecord]]
) -> list[JobBodies]:
    """Return what the bodies of jobs and of their runs hold, in one request."""
    wanted = [_references(record, own) for record, own in zip(page, closed, strict=True)]
    keys = [each.key for own in wanted for each in own]
    found = dict(zip(keys, await unit.engine.get(keys), strict=True))
    return [
        JobBodies(
            params=_params(record, found),
            missing=tuple(f"{e.key.part} {e.key.sort}" for e in own if _is_missing(found[e.key])),
        )
        for record, own in zip(page, wanted, strict=True)
    ]


def _params(record: JobRecord, found: dict[Key, StoredItem | None]) -> str | None:
    params = record.job.params
    if not isinstance(params, BodyReference):
        return params
    body = found[params.key]
    return None if body is None or body.damage else bodies.text_in(body.value)


def _is_missing(body: StoredItem | None) -> bool:
    return body is None or body.damage is not None


def _references(record: JobRecord, closed: Iterable[RunRecord]) -> list[BodyReference]:
    texts = [record.job.params, record.last_error]
    texts += [text for run in closed for text in (run.error, run.result)]
    return list(dict.fromkeys(text for text in texts if isinstance(text, BodyReference)))


async def dangling(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    """Yield the bodies that neither their job nor a run of it refers to."""
    for part in key_layout.BODY_PARTS:
        async for page in pages(context, part, size=PAGE):
            keys = [entry.key for entry in page]
            for key in await context.run_unit(partial(_unreferred, keys=keys)):
                rows = (f"{key.part} {key.sort}",)
                yield DanglingRecord(kind=DanglingKind.BODY, rows=rows)


async def _unreferred(unit: UnitOfWork, *, keys: Sequence[Key]) -> list[Key]:
    """Return the keys of bodies that nothing refers to, and that still exist."""
    ids = list(dict.fromkeys(key.sort.rsplit("#", 2)[0] for key in keys))
    there = [record for record in await job_repository.load_many(unit, ids) if record is not None]
    left = await runs.of_jobs(unit, key_layout.RUN, ids)
    known: set[str] = {text for record in there for text in _references(record, ())}
    sound = [entry for found in left for entry in found if entry.damage is None]
    known |= {key.sort for entry in sound for key in runs.keys_of(entry)}
    unknown = [key for key in keys if key.sort not in known]
    still = await unit.engine.get(unknown) if unknown else []
    return [key for key, entry in zip(unknown, still, strict=True) if entry is not None]
