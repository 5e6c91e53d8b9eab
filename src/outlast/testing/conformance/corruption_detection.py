"""`verify` finds injected corruption. Takes a fixture `corrupter`."""

from typing import Any

import pytest

from outlast.core.audit.violation import ViolationCode
from outlast.core.delivery import Delivery
from outlast.core.event import DetachedJobFound, Failed, SuccessorMissing
from outlast.core.ids import JobId
from outlast.core.job import Slot
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import START
from outlast.testing.conformance.corruption import CorruptionInjector
from outlast.testing.conformance.factories import (
    FAILED,
    MANY,
    SUCCEEDED,
    ended,
    job_of,
    last_run,
    make_job,
    put,
    settle,
    started,
    take,
)
from outlast.verify import verify

LINKED = {"delivery": Delivery.LINKED}


async def _found(store: Store) -> list[tuple[ViolationCode, JobId | None]]:
    report = await verify(store)
    assert report.found == len(report.violations)
    assert all(violation.rows and violation.what for violation in report.violations)
    return [(violation.code, violation.job_id) for violation in report.violations]


@pytest.mark.parametrize("place", ["waiting", "running", "ended"])
async def test_job_in_no_place_is_refuted_until_recovery_has_settled_it(
    store: Store, corrupter: CorruptionInjector, place: str
) -> None:
    await ended(store)
    job_id = await put(store)
    if place != "waiting":
        claim = await take(store)
        assert place == "running" or await settle(store, claim, SUCCEEDED)

    await corrupter.detach(job_id)

    assert await _found(store) == [(ViolationCode.DETACHED, job_id)]
    [job] = await store.detached_jobs(limit=MANY)
    last = (await last_run(store, job_id)).status if job.token else None
    assert await settle(store, job, DetachedJobFound(last))
    assert await _found(store) == []


async def test_failed_link_that_nothing_follows_is_refuted_until_it_is_continued(
    store: Store, corrupter: CorruptionInjector
) -> None:
    job_id = await ended(store, FAILED, **LINKED)

    await corrupter.drop_successor(job_id)

    assert await _found(store) == [(ViolationCode.MISSING_SUCCESSOR, job_id)]
    [job] = await store.missing_successors(limit=MANY)
    assert await settle(store, job, SuccessorMissing("startup_recovery"))
    assert await _found(store) == []


async def test_runs_of_a_job_that_is_gone_are_refuted_until_they_are_removed(
    store: Store, corrupter: CorruptionInjector
) -> None:
    gone = await ended(store, Failed("broke", permanent=True))
    await put(store)

    await corrupter.orphan(gone)

    assert await _found(store) == [(ViolationCode.ORPHAN_RUN, None)]
    assert len(await store.remove_orphans(limit=MANY)) == 1
    assert await _found(store) == []


@pytest.mark.parametrize(
    "params",
    ['{"x":' + "[" * 3000 + "]" * 3000 + "}", '{"x":' + "7" * 5000 + "}"],
    ids=["deep", "long number"],
)
async def test_job_whose_params_python_cannot_parse_is_read_claimed_and_ended(
    store: Store, corrupter: CorruptionInjector, params: str
) -> None:
    job_id = await put(store)

    await corrupter.replace_params(job_id, params)

    assert (await job_of(store, job_id)).params == params
    assert [job.id for job in await store.find(Filter(), limit=MANY)] == [job_id]
    facts = await store.wait_facts(job_id)
    assert facts is not None
    assert facts.job.params == params
    claim = await take(store)
    assert claim.params == params
    assert await settle(store, claim, SUCCEEDED)
    assert {code for code, _ in await _found(store)} <= {ViolationCode.PARAMS_NOT_JSON}


async def test_job_whose_slot_is_not_its_own_is_refuted(
    store: Store, corrupter: CorruptionInjector
) -> None:
    kept, lost = (Slot(series=name, at=START) for name in ("kept", "lost"))
    await put(store, slot=kept)
    job_id = await put(store, slot=lost)

    await corrupter.drop_slot_row(job_id)

    assert await _found(store) == [(ViolationCode.SLOT_MISMATCH, job_id)]
    assert (await store.add([make_job(slot=lost)]))[0].created  # another has it now
    assert await _found(store) == [(ViolationCode.SLOT_MISMATCH, job_id)]


async def test_predecessor_that_is_gone_is_refuted(
    store: Store, corrupter: CorruptionInjector
) -> None:
    root = await ended(store, FAILED, **LINKED)
    [_, successor] = await store.chain(root)

    await corrupter.orphan(root)

    assert await _found(store) == [
        (ViolationCode.MISSING_PREDECESSOR, successor.id),
        (ViolationCode.ORPHAN_RUN, None),
    ]


async def test_active_key_of_a_job_that_is_gone_is_refuted(
    store: Store, corrupter: CorruptionInjector
) -> None:
    claim = await started(store, active_key="k")
    await settle(store, claim, FAILED)
    await take(store)

    await corrupter.orphan(claim.id)

    codes = [code for code, _ in await _found(store)]
    assert ViolationCode.DANGLING_KEY in codes


@pytest.mark.parametrize("linked", [{}, LINKED], ids=["lease", "linked"])
async def test_unfinished_job_that_lost_its_active_key_is_refuted(
    store: Store, corrupter: CorruptionInjector, linked: dict[str, Any]
) -> None:
    """Also once another job holds the key."""
    claim = await started(store, active_key="k", **linked)
    await settle(store, claim, FAILED)
    job_id = (await store.chain(claim.id))[-1].id

    await corrupter.drop_active_key("k")

    assert await _found(store) == [(ViolationCode.KEY_NOT_HELD, job_id)]
    assert (await store.add([make_job(active_key="k")]))[0].created
    assert await _found(store) == [(ViolationCode.KEY_NOT_HELD, job_id)]


async def test_ended_job_need_not_hold_its_active_key(store: Store) -> None:
    await ended(store, FAILED, active_key="k", max_attempts=1)

    assert await _found(store) == []
