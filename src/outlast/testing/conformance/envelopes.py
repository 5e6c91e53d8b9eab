"""Stored texts come back byte for byte: the envelopes of a payload codec among them."""

from datetime import timedelta
from typing import Final

import pytest

from outlast.core.delivery import Delivery
from outlast.core.envelope import EncodedPayload, encoded, label, merged
from outlast.core.event import Edited, Failed, Skipped, Succeeded
from outlast.core.failure import ExceptionInfo, Frame
from outlast.core.position import JobEdit
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    ended,
    job_of,
    last_run,
    put,
    put_schedule,
    settle,
    started,
    take,
)
from outlast.verify import verify

RAISED: Final = ExceptionInfo(
    type="Refused", module="bank", message="", frames=(Frame("bank.py", 7, "pay", ""),)
)
SEALED: Final = encoded("aesgcm", EncodedPayload("q/+0" * 900, "2026-11"))
ERROR: Final = encoded("aesgcm", EncodedPayload("q/+0", "2026-11"), RAISED)
texts = pytest.mark.parametrize(
    "text",
    [
        encoded("gzip", EncodedPayload('\\"\n\x7fö\u2028')),
        SEALED,
        merged([SEALED, '{"n":1.50}']),
        '{"b": 1.50,  "a":1E2,\t"b":"\\u00e4"}',  # no envelope; numbers and spaces stay
    ],
)


@texts
async def test_params_and_result_come_back_byte_for_byte(store: Store, text: str) -> None:
    claim = await started(store, params=text)
    assert claim.params == text
    assert await settle(store, claim, Succeeded(text))

    run = await last_run(store, claim.id)

    assert (run.params_snapshot, run.result) == (text, text)
    assert (await job_of(store, claim.id)).params == text
    assert (await verify(store)).violations == ()


@texts
async def test_progress_and_edits_come_back_byte_for_byte(store: Store, text: str) -> None:
    job_id = await put(store, params="{}")
    assert await settle(store, await job_of(store, job_id), Edited(JobEdit(params=text)))
    claim = await take(store)
    short = text[:4000] if label(text) is None else ERROR
    assert await store.record_progress([(claim.lease, short)]) == [True]

    job = await job_of(store, job_id)

    assert (claim.params, job.params, job.progress) == (text, text, short)


async def test_error_and_reason_come_back_byte_for_byte(store: Store) -> None:
    failed = await ended(store, Failed(ERROR, permanent=True))
    skipped = await ended(store, Skipped(SEALED))

    assert (await last_run(store, failed)).error == ERROR
    assert (await job_of(store, skipped)).reason == SEALED
    assert (await last_run(store, skipped)).reason == SEALED
    assert SEALED in [event.reason for event in await store.events(skipped)]


async def test_successor_has_the_envelope_of_its_predecessor(store: Store) -> None:
    root = await ended(store, Failed(ERROR), params=SEALED, delivery=Delivery.LINKED)

    assert [job.params for job in await store.chain(root)] == [SEALED] * 2


async def test_schedule_and_document_keep_envelopes(store: Store, clock: FakeClock) -> None:
    await put_schedule(store, clock.now() + timedelta(hours=1), params=SEALED, declared=ERROR)
    await store.swap("template", "t", expected=None, value=f'{{"params":{SEALED}}}')

    found = await store.schedule("nightly")
    document = await store.document("template", "t")

    assert found is not None
    assert (found.plan.params, found.plan.declared) == (SEALED, ERROR)
    assert document is not None
    assert document.value == f'{{"params":{SEALED}}}'
