"""Enqueue of a job by the name of its type, with its code or without it."""

from collections.abc import Mapping
from typing import Any

from outlast.core.limits import repr_short
from outlast.core.suggestion import did_you_mean
from outlast.errors import InvalidJob, InvalidParams, TypeNotFound
from outlast.jobs.client import Client
from outlast.jobs.client_source import ClientSource
from outlast.jobs.codec import dump_untyped
from outlast.jobs.enqueue_plan import NO_DIRECT_OPTIONS, EnqueuePlan
from outlast.jobs.handle import Handle
from outlast.jobs.options import JobOptions, new_job
from outlast.jobs.policy import Policy
from outlast.jobs.registry import Registry


async def enqueue_by_name(
    client: Client,
    registry: Registry,
    type_name: str,
    params: Mapping[str, Any] | None,
    *,
    elsewhere: bool,
    delivery: str | None,
    options: JobOptions,
) -> Handle[Any]:
    """Store a job; its params are checked now, or if its code is elsewhere at its claim."""
    given = _by_name(params, type_name)
    if type_name not in registry.names():
        if not elsewhere:
            raise _unknown(registry, type_name)
        plan = _plan_elsewhere(client, type_name, delivery or "lease", options)
        return await plan.enqueue(plan.encode((), given))
    if delivery is not None:
        raise InvalidJob(
            f"delivery was given for {type_name}, whose code is in this app and says how it is "
            "delivered; leave it out"
        )
    return await registry.get(type_name).options(**options).enqueue(**given)


def _plan_elsewhere(
    client: Client, type_name: str, delivery: str, options: JobOptions
) -> EnqueuePlan:
    """Return how to enqueue a job of a type that this process does not know."""
    fields: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    tx = fields.pop("tx", None)
    return EnqueuePlan(
        type_name,
        ClientSource(type_name, client),
        new_job(Policy.new(name=type_name, delivery=delivery), **fields),
        encode=lambda _, given: dump_untyped(given, what=f'params of "{type_name}"'),
        on_conflict=fields.get("on_conflict", "existing"),
        tx=tx,
        direct=NO_DIRECT_OPTIONS,
    )


def _by_name(params: object, type_name: object) -> dict[str, Any]:
    if params is None:
        return {}
    if not isinstance(params, Mapping) or not all(isinstance(each, str) for each in params):
        raise InvalidParams(
            f'params of {repr_short(type_name)} are no mapping; give them by name: {{"user_id": 3}}'
        )
    return dict(params)


def _unknown(registry: Registry, type_name: str) -> TypeNotFound:
    return TypeNotFound(
        f"job type {repr_short(type_name)} is not registered; "
        f"{did_you_mean(str(type_name), registry.names())}; if its code is in another app, pass "
        "elsewhere=True"
    )
