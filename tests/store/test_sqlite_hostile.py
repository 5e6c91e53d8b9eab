"""Hostile text: kept exactly as it is or refused, never cut, changed or obeyed."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from outlast.core.decide import decide, succeed
from outlast.core.event import Event, Failed, Released, Skipped, Succeeded
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, Job, NewJob, Slot
from outlast.errors import OutlastError
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START
from outlast.testing.conformance.factories import (
    LEASE,
    MANY,
    last_run,
    make_holder,
    make_job,
    new_id,
    put,
    started,
    take_many,
)
from support.crash.sqlite_target import dump

from .hostile import HOSTILE

FIELDS: dict[str, Callable[[str], NewJob]] = {
    "type": lambda text: make_job(type=text),
    "name": lambda text: make_job(name=text),
    "queue": lambda text: make_job(queue=text),
    "params": lambda text: make_job(params=text),
    "group_id": lambda text: make_job(group_id=text),
    "template_id": lambda text: make_job(template_id=text),
    "schedule_id": lambda text: make_job(schedule_id=text),
}
KEYS: dict[str, Callable[[str], NewJob]] = {
    "key": lambda text: make_job(key=DedupeKey(key=text)),
    "bucket": lambda text: make_job(key=DedupeKey(key="k", bucket=text)),
    "active_key": lambda text: make_job(active_key=text),
    "slot": lambda text: make_job(slot=Slot(series=text, at=START)),
}


def _shown(texts: list[str]) -> list[str]:
    return [ascii(text[:40]) for text in texts]


def test_there_are_enough_of_them() -> None:
    assert len(set(HOSTILE)) >= 60


@pytest.mark.parametrize("field", FIELDS)
async def test_text_of_a_job_is_kept_exactly_or_refused(store: SqliteStore, field: str) -> None:
    jobs = {text: FIELDS[field](text) for text in HOSTILE}

    added = await store.add(list(jobs.values()))

    stored = {job.id: job for job in await store.find(Filter(), limit=MANY)}
    for (text, job), answer in zip(jobs.items(), added, strict=True):
        assert answer.created == (answer.refused is None), ascii(text[:40])
        assert (job.id in stored) == answer.created, ascii(text[:40])
    changed = [text for text, job in jobs.items() if _kept(stored, job, field) not in {None, text}]
    assert _shown(changed) == []
    assert dump(store.path), "and the file is sound"


def _kept(stored: dict[JobId, Job], job: NewJob, field: str) -> Any:
    return getattr(stored[job.id], field) if job.id in stored else None


async def test_each_text_is_refused_or_kept_alike_alone_and_among_others(
    store: SqliteStore,
) -> None:
    together = await store.add([make_job(name=text) for text in HOSTILE])
    alone = [(await store.add([make_job(name=text)]))[0] for text in HOSTILE]

    assert [one.created for one in alone] == [one.created for one in together]
    assert [one.refused for one in alone] == [one.refused for one in together]


async def test_json_text_comes_back_to_the_letter(store: SqliteStore) -> None:
    texts = [text for text in HOSTILE if len(text) < 70_000]
    jobs = [make_job(params=json.dumps({"text": text, text: 1})) for text in texts]

    added = await store.add(jobs)

    claims = await take_many(store)
    assert all(answer.created for answer in added)
    assert [claim.params for claim in claims] == [job.params for job in jobs]


@pytest.mark.parametrize("scope", KEYS)
async def test_key_is_taken_by_exactly_its_own_text(store: SqliteStore, scope: str) -> None:
    first = [KEYS[scope](text) for text in HOSTILE]
    second = [KEYS[scope](text) for text in HOSTILE]

    taken = await store.add(first)
    again = await store.add(second)

    for text, job, one, two in zip(HOSTILE, first, taken, again, strict=True):
        if one.created:
            assert (two.id, two.created) == (job.id, False), ascii(text[:40])
        elif one.refused:
            assert two.refused, ascii(text[:40])
        else:
            assert HOSTILE.count(text) > 1, f"{text[:40]!a} met another text"


ENDS: dict[str, Callable[[str], Event]] = {
    "error": lambda text: Failed(text, permanent=True),
    "retried error": lambda text: Failed(text),
    "reason": Skipped,
    "release": Released,
    "result": Succeeded,
    "json result": lambda text: Succeeded(json.dumps(text)),
}


@pytest.mark.parametrize("kind", ENDS)
async def test_text_of_an_end_is_kept_exactly_or_refused(store: SqliteStore, kind: str) -> None:
    await store.add([make_job() for _ in HOSTILE])
    claims = await take_many(store)
    events = [ENDS[kind](text) for text in HOSTILE]
    pairs = zip(claims, events, strict=True)

    applied = await store.apply([decide(claim, event, new_id=new_id) for claim, event in pairs])

    for claim, event, written in zip(claims, events, applied, strict=True):
        run = await last_run(store, claim.id)
        if written:
            assert _text(event) in {run.error, run.reason, run.result}, ascii(_text(event)[:40])
        else:
            assert run.status == "running", ascii(_text(event)[:40])
    assert dump(store.path), "and the file is sound"


def _text(event: Event) -> str:
    """The hostile text that an event carries."""
    for name in ("error", "result", "reason"):
        if text := getattr(event, name, None):
            return str(text)
    return ""


async def test_artifact_is_kept_exactly_or_refused(store: SqliteStore) -> None:
    claim = await started(store)
    kept: list[str] = []

    for text in HOSTILE:
        try:
            if await store.attach(claim.lease, [text]):
                kept.append(text)
        except (OutlastError, ValueError):
            pass

    assert (await last_run(store, claim.id)).artifacts == tuple(kept)
    assert len(kept) >= 60


async def test_holder_is_kept_exactly_or_refused(store: SqliteStore) -> None:
    for text in HOSTILE:
        job_id = await put(store)
        try:
            claims = await store.claim(
                make_holder(text), queue="default", types=["feed.fetch"], limit=MANY, lease=LEASE
            )
        except (OutlastError, ValueError):
            claims = []

        run = await store.runs(job_id)
        assert [one.holder for one in run] == [text for claim in claims if claim.id == job_id]
        await store.apply([succeed(claim.id, claim.token, None) for claim in claims])
