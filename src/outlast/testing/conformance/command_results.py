"""A command run records its exit code and the path of its output."""

from dataclasses import replace
from typing import Any

import pytest

from outlast.core.decide import decide
from outlast.core.event import Event, Stopped
from outlast.core.limits import MAX_EXIT_CODE, MAX_PATH, MIN_EXIT_CODE
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.testing.conformance.factories import (
    FAILED,
    LOST,
    SUCCEEDED,
    job_of,
    kinds,
    last_run,
    new_id,
    settle,
    started,
    take,
)


@pytest.mark.parametrize("event", [SUCCEEDED, FAILED, LOST, Stopped("told")])
@pytest.mark.parametrize("code", [0, 3, -9, MIN_EXIT_CODE, MAX_EXIT_CODE, None])
async def test_change_writes_exit_code_and_log_path_with_the_end(
    store: Store, event: Event, code: int | None
) -> None:
    claim = await started(store)
    change = decide(claim, event, new_id=new_id)

    await store.apply([replace(change, exit_code=code, log_path="logs/öl 1.log")])

    run = await last_run(store, claim.id)
    assert (run.exit_code, run.log_path) == (code, "logs/öl 1.log")
    assert (run.artifacts, run.result, run.error) == ((), change.result, change.error)


async def test_success_that_leaves_only_an_exit_code_keeps_it(store: Store) -> None:
    plain, coded = await started(store), await started(store)
    changes = [decide(claim, SUCCEEDED, new_id=new_id) for claim in (plain, coded)]

    await store.apply([changes[0], replace(changes[1], exit_code=0)])

    assert (await last_run(store, plain.id)).exit_code is None
    assert (await last_run(store, coded.id)).exit_code == 0


async def test_exit_code_and_log_path_of_a_former_holder_are_refused(store: Store) -> None:
    former = await started(store)
    late = replace(decide(former, SUCCEEDED, new_id=new_id), exit_code=1, log_path="old.log")
    await settle(store, former, LOST)
    change = decide(await take(store), SUCCEEDED, new_id=new_id)

    assert await store.apply([replace(change, exit_code=0, log_path="new.log")]) == [True]
    assert await store.apply([late]) == [False]

    runs = await store.runs(former.id)
    assert [(run.exit_code, run.log_path) for run in runs] == [(None, None), (0, "new.log")]


@pytest.mark.parametrize(
    "leaving",
    [
        {"exit_code": MAX_EXIT_CODE + 1},
        {"exit_code": MIN_EXIT_CODE - 1},
        {"exit_code": 2**80},
        {"log_path": ""},
        {"log_path": "x" * (MAX_PATH + 1)},
        {"log_path": "nul\0"},
        {"log_path": "\udcff"},
    ],
    ids=["large", "small", "huge", "empty", "long", "nul", "surrogate"],
)
async def test_leaving_that_cannot_be_kept_leaves_nothing_and_sinks_nobody(
    store: Store, leaving: dict[str, Any]
) -> None:
    claims = [await started(store) for _ in range(3)]
    first, bad, last = [decide(claim, SUCCEEDED, new_id=new_id) for claim in claims]

    applied = await store.apply([first, replace(bad, **leaving), last])

    assert applied == [True, False, True]
    assert (await job_of(store, claims[1].id)).state is State.RUNNING
    assert await kinds(store, claims[1].id) == []
