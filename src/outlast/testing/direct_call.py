"""Call of one handler as a worker calls it, without a store."""

import asyncio
import inspect
from typing import Any

from outlast.core.ids import Ids, RunId
from outlast.core.outcome import HandlerOutcome
from outlast.core.run import Claim
from outlast.jobs.jobtype import JobType
from outlast.run_context import WorkerRun
from outlast.worker.executors.thread import ThreadExecutor
from outlast.worker.run_outcome import ActiveRun


async def call_handler(
    kind: JobType[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    ids: Ids,
    context: Any,
) -> Any:
    """Call a handler and return its result after a JSON round trip; outcomes as they are."""
    claim = _claim(kind, kind.encode_params(args, kwargs), ids)
    loop = asyncio.get_running_loop()
    active = ActiveRun(claim, kind, lambda claim, _: WorkerRun(claim, loop=loop, context=context))
    value = await _call(active, kind.load(claim.params))
    if isinstance(value, HandlerOutcome):
        return value
    return kind.load_result(kind.dump_result(value))


async def _call(active: ActiveRun, params: dict[str, Any]) -> object:
    if inspect.iscoroutinefunction(active.kind.function):
        return await active.handler(**params)
    threads = ThreadExecutor(1)
    try:
        return await threads.call(active, params)
    finally:
        threads.close_now()


def _claim(kind: JobType[..., Any], params: str, ids: Ids) -> Claim:
    return Claim(
        job_id=ids.job(),
        token=1,
        run_id=RunId(ids.job()),
        type=kind.name,
        params=params,
        delivery=kind.delivery,
        failures=0,
        losses=0,
        max_attempts=kind.retry.max_attempts,
        metadata=kind.policy.metadata,
    )
