"""Template manager: stored job definitions, and jobs made from them."""

import builtins
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Unpack

from outlast.core.document import Document
from outlast.core.envelope import MARK, PayloadContext, escape, merge_plain, plain
from outlast.core.limits import MAX_PAYLOAD, check_name, repr_short
from outlast.core.schedule import JobBlueprint
from outlast.core.template import KIND, Template, from_record, to_value
from outlast.errors import (
    InvalidArgument,
    InvalidParams,
    PayloadTooLarge,
    TemplateChanged,
    TemplateNotFound,
)
from outlast.jobs.client import Client
from outlast.jobs.enqueue_plan import EnqueuePlan
from outlast.jobs.handle import Handle
from outlast.jobs.jobtype import Bound, JobType, definition_of
from outlast.jobs.options import JobOptions, new_job
from outlast.jobs.registry import Registry
from outlast.store.contract import Store

_MAX_ATTEMPTS: Final = 100
_MAX_SUGGESTIONS: Final = 3


class TemplateManager:
    """Stored job definitions by name: `await app.templates.enqueue("weekly", user_id=3)`.

    A job stores its own params, and the id and version of its template. A later edit or removal
    of the template does not change the job.
    """

    def __init__(self, client: Client, registry: Registry) -> None:
        self._client = client
        self._registry = registry

    async def save(
        self,
        name: str,
        job_type: JobType[..., Any] | Bound[Any] | str,
        *,
        params: Mapping[str, Any] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        expected: datetime | None = None,
    ) -> Template:
        """Create or replace a template; `params` may be incomplete.

        A bound job, `fetch.bind(url=…)`, gives all params, which type checkers check. None means
        the default of the type. With `expected`, the `updated_at` that you read,
        TemplateChanged if the template was changed since. InvalidParams names a param that is
        unknown or does not match the type.
        """
        check_name(name, what="the name of a template")
        if isinstance(job_type, Bound):
            job_type, params = _of_bound(self._registry, job_type, params)
        kind = self._known(job_type)
        new_job(kind.policy, queue=queue, priority=priority, max_attempts=max_attempts)
        text = kind.wrap_params(kind.codec.partial().dump(_named(params, name)))
        for _ in range(_MAX_ATTEMPTS):
            there = await (await self._client.store()).document(KIND, name)
            _check_expected(name, there, expected)
            own_id = from_record(there).id if there else str(self._client.ids.job())
            value = to_value(
                template_id=own_id,
                job_type=kind.name,
                params=text,
                queue=queue,
                priority=priority,
                max_attempts=max_attempts,
                making=blueprint_for(kind),
            )
            saved = await self._swap(name, there, value)
            if saved is not None:
                return self._revealed(saved)
        raise TemplateChanged(
            f"template {name} was changed {_MAX_ATTEMPTS} times meanwhile; save it again"
        )

    async def get(self, name: str) -> Template:
        """Return the template with a name or id; TemplateNotFound if there is none."""
        return self._revealed(await self._record(name))

    async def list(self) -> builtins.list[Template]:
        """Return every template, by name."""
        found = await (await self._client.store()).documents(KIND)
        return [self._revealed(each) for each in found]

    async def remove(self, name: str) -> Template:
        """Delete a template and return it; TemplateNotFound if there is none."""
        for _ in range(_MAX_ATTEMPTS):
            there = await self._record(name)
            gone = await self._swap(there.key, there, None)
            if gone is not None:
                return self._revealed(gone)
        raise TemplateChanged(
            f"template {name} was changed {_MAX_ATTEMPTS} times meanwhile; try again"
        )

    async def enqueue(self, name: str, /, **params: Any) -> Handle[Any]:
        """Store a job of the template; these params replace those of the template."""
        return await self.options(name).enqueue(**params)

    def options(self, name: str, /, **options: Unpack[JobOptions]) -> "ConfiguredTemplate":
        """Return a template with options for one job: `.options("weekly", delay="5m")`."""
        return ConfiguredTemplate(self, name, options)

    async def plan(
        self, name: str, options: JobOptions, given: Mapping[str, Any]
    ) -> tuple[EnqueuePlan, str]:
        """Return how to enqueue a job of the template as it is stored now, and its payload."""
        template = from_record(await self._record(name))
        kind = self._registry.get(template.type)
        own = kind.codec.partial().dump(dict(given))
        params = merge_plain([kind.plain_params(template.params), plain(own, "params")])
        complete = kind.codec.dump(kind.codec.load(escape(params)))
        return _plan(kind, template, options), kind.wrap_params(complete)

    def _revealed(self, record: Document) -> Template:
        """Return the template, with its params decoded if this app can decode them."""
        found, envelopes = from_record(record), self._client.envelopes
        if envelopes.codec is None or not found.params.startswith(MARK):
            return found
        context = PayloadContext("params", found.type)
        return replace(found, params=envelopes.reveal_text(found.params, context))

    async def _record(self, name: str) -> Document:
        return await template_record(await self._client.store(), name)

    async def _swap(self, name: str, there: Document | None, value: str | None) -> Document | None:
        if value is not None and len(value.encode()) > MAX_PAYLOAD:
            raise PayloadTooLarge(
                f"template {name} is {len(value.encode()):,} bytes; the limit is "
                f"{MAX_PAYLOAD // 1024} KiB, so store the data elsewhere and pass a reference to it"
            )
        store = await self._client.store()
        expected = None if there is None else there.version
        return await store.swap(KIND, name, expected=expected, value=value)

    def _known(self, job_type: JobType[..., Any] | str) -> JobType[..., Any]:
        """Return the type if this app has registered it; a template stores only its name."""
        if isinstance(job_type, str):
            return self._registry.get(job_type)
        if not isinstance(job_type, JobType) or job_type.client is not self._client:
            raise InvalidArgument(
                f"{job_type!r:.80} is no job type of this app; give one, or its name"
            )
        return job_type


async def template_record(store: Store, name: str) -> Document:
    """Return the document of the template with a name or id; TemplateNotFound if there is none."""
    check_name(name, what="the name of a template")
    found = await store.document(KIND, name)
    if found is not None:
        return found
    known = await store.documents(KIND)
    for each in known:
        if from_record(each).id == name:
            return each
    raise _unknown(name, [each.key for each in known])


def blueprint_for(kind: JobType[..., Any]) -> JobBlueprint:
    """Return a type's defaults, for a trigger that enqueues without the app's code."""
    policy = kind.policy
    return JobBlueprint(
        type=policy.name,
        name=policy.name,
        delivery=policy.delivery,
        queue=policy.queue,
        priority=policy.priority,
        max_attempts=policy.retry.max_attempts,
        metadata=policy.metadata,
    )


class ConfiguredTemplate:
    """A template with the options of one enqueue; the template is read by `enqueue`."""

    def __init__(self, templates: TemplateManager, name: str, options: JobOptions) -> None:
        self._templates = templates
        self._name = name
        self._options = options

    async def enqueue(self, /, **params: Any) -> Handle[Any]:
        """Store a job of the template; params and options replace those of the template."""
        plan, payload = await self._templates.plan(self._name, self._options, params)
        return await plan.enqueue(payload)


def _of_bound(
    registry: Registry, bound: Bound[Any], params: Mapping[str, Any] | None
) -> tuple[str, Mapping[str, Any]]:
    """Return the type and the params of a bound job; InvalidArgument if it has options."""
    plan, payload = definition_of(bound)
    if params is not None:
        raise InvalidArgument(
            f"params were given twice for {plan.type_name}, bound and as params=; give them once"
        )
    if plan.like != new_job(registry.get(plan.type_name).policy) or plan.tx is not None:
        raise InvalidArgument(
            f"the bound job of {plan.type_name} has options; give those of the template to save: "
            "queue=, priority= and max_attempts="
        )
    plain_text = registry.get(plan.type_name).plain_params(payload)
    return plan.type_name, json.loads(plain_text)


def _plan(kind: JobType[..., Any], template: Template, options: JobOptions) -> EnqueuePlan:
    fields: dict[str, Any] = {
        "queue": template.queue,
        "priority": template.priority,
        "max_attempts": template.max_attempts,
        **{name: value for name, value in options.items() if value is not None},
    }
    on_conflict, tx = fields.get("on_conflict"), fields.pop("tx", None)
    like = new_job(kind.policy, **fields)
    marked = replace(like, template_id=template.id, template_at=template.updated_at)
    return kind.plan(marked, on_conflict=on_conflict, tx=tx)


def _named(params: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    if params is None:
        return {}
    if not isinstance(params, Mapping) or not all(isinstance(each, str) for each in params):
        raise InvalidParams(f"params of template {name} are no mapping; give them by name")
    return dict(params)


def _check_expected(name: str, there: Document | None, expected: datetime | None) -> None:
    if expected is None or (there is not None and there.updated_at == expected):
        return
    now = "was removed" if there is None else f"was changed at {there.updated_at}"
    raise TemplateChanged(f"template {name} {now}; read it again, and edit what it is now")


def _unknown(name: str, known: list[str]) -> TemplateNotFound:
    near = get_close_matches(name, known, n=_MAX_SUGGESTIONS) or known[:_MAX_SUGGESTIONS]
    there = f"near it: {', '.join(near)}" if near else "there are none; save one first"
    return TemplateNotFound(f"no template {repr_short(name)} is in this store; {there}")
