"""Templates as an app uses them: saved under a name, and made into jobs."""

import builtins
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, TypedDict, Unpack

from outlast.core.document import Document
from outlast.core.duration import Duration
from outlast.core.job import Slot
from outlast.core.limits import MAX_PAYLOAD, check_name, repr_short
from outlast.core.schedule import JobBlueprint
from outlast.core.template import KIND, Template, from_record, merge, to_json, to_value
from outlast.errors import (
    InvalidArgument,
    InvalidParams,
    PayloadTooLarge,
    TemplateChanged,
    TemplateNotFound,
)
from outlast.jobs.client import Client
from outlast.jobs.handle import Handle
from outlast.jobs.jobtype import ConfiguredJobType, JobType
from outlast.jobs.options import OnConflict, new_job
from outlast.jobs.registry import Registry

_TRIES: Final = 100
_NEAR: Final = 3


class TemplateOptions(TypedDict, total=False):
    """What may be wished for one job, as in `JobType.options`."""

    delay: Duration | None
    at: datetime | None
    key: str | None
    bucket: str | None
    active_key: str | None
    priority: int | None
    queue: str | None
    slot: datetime | Slot | None
    max_attempts: int | None
    start_within: Duration | None
    group_id: str | None
    on_conflict: OnConflict
    tx: Any


class TemplateManager:
    """Stored job definitions by name: `await app.templates.enqueue("weekly", user_id=3)`.

    A job keeps the params it was made with, and says which version of which template that was;
    editing or removing the template later changes nothing about it.
    """

    def __init__(self, client: Client, registry: Registry) -> None:
        self._client = client
        self._registry = registry

    async def save(
        self,
        name: str,
        job_type: JobType[..., Any] | str,
        *,
        params: Mapping[str, Any] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        expected: datetime | None = None,
    ) -> Template:
        """Create the template, or write over it; `params` need not be complete.

        With `expected`, the `updated_at` of the version you know, TemplateChanged if it is no
        longer that one. InvalidParams if a param is unknown or does not fit; None is as the type
        says.
        """
        check_name(name, what="the name of a template")
        kind = self._known(job_type)
        new_job(kind.policy, queue=queue, priority=priority, max_attempts=max_attempts)
        text = kind.codec.partial().dump(_named(params, name))
        for _ in range(_TRIES):
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
                return from_record(saved)
        raise TemplateChanged(
            f"template {name} was changed {_TRIES} times meanwhile; save it again"
        )

    async def get(self, name: str) -> Template:
        """The template as it stands; TemplateNotFound if there is none."""
        return from_record(await self._record(name))

    async def list(self) -> builtins.list[Template]:
        """Every template, by name."""
        return [from_record(each) for each in await (await self._client.store()).documents(KIND)]

    async def remove(self, name: str) -> Template:
        """Delete it; the template that is gone. TemplateNotFound if there is none."""
        for _ in range(_TRIES):
            there = await self._record(name)
            gone = await self._swap(name, there, None)
            if gone is not None:
                return from_record(gone)
        raise TemplateChanged(f"template {name} was changed {_TRIES} times meanwhile; try again")

    async def enqueue(self, name: str, /, **call: Any) -> Handle[Any]:
        """Store a job as the template says, with these params over its own."""
        return await self.options(name).enqueue(**call)

    def options(self, name: str, /, **options: Unpack[TemplateOptions]) -> "ConfiguredTemplate":
        """The template with wishes for one job: `.options("weekly", delay="5m").enqueue(…)`."""
        return ConfiguredTemplate(self, name, options)

    async def configured(
        self, name: str, options: TemplateOptions, call: Mapping[str, Any]
    ) -> tuple[ConfiguredJobType[..., Any], str]:
        """What to enqueue, and with which params, as the template stands now."""
        template = await self.get(name)
        kind = self._registry.get(template.type)
        given = json.loads(kind.codec.partial().dump(dict(call)))
        params = _checked(kind, merge(template, {}, given))
        return _configured(kind, template, options), params

    async def _record(self, name: str) -> Document:
        check_name(name, what="the name of a template")
        store = await self._client.store()
        found = await store.document(KIND, name)
        if found is None:
            raise _unknown(name, [each.key for each in await store.documents(KIND)])
        return found

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
        """The type as this app has it: a template names it, and must find it again."""
        if isinstance(job_type, str):
            return self._registry.get(job_type)
        if not isinstance(job_type, JobType) or job_type.client is not self._client:
            raise InvalidArgument(
                f"{job_type!r:.80} is no job type of this app; give one, or its name"
            )
        return job_type


def blueprint_for(kind: JobType[..., Any]) -> JobBlueprint:
    """What a type says of its jobs, for whoever makes some without knowing it."""
    policy = kind.policy
    return JobBlueprint(
        type=policy.name,
        name=policy.name,
        delivery=policy.delivery,
        queue=policy.queue,
        priority=policy.priority,
        max_attempts=policy.retry.max_attempts,
    )


class ConfiguredTemplate:
    """A template with the options of one enqueue; it is read when that comes."""

    def __init__(self, templates: TemplateManager, name: str, options: TemplateOptions) -> None:
        self._templates = templates
        self._name = name
        self._options = options

    async def enqueue(self, /, **call: Any) -> Handle[Any]:
        """Store a job as the template says, with these params and options over its own."""
        configured, params = await self._templates.configured(self._name, self._options, call)
        return await configured.enqueue_text(params)


def _configured(
    kind: JobType[..., Any], template: Template, options: TemplateOptions
) -> ConfiguredJobType[..., Any]:
    own: TemplateOptions = {
        "queue": template.queue,
        "priority": template.priority,
        "max_attempts": template.max_attempts,
    }
    given = {name: value for name, value in options.items() if value is not None}
    wished = kind.options(**{**own, **given})  # type: ignore[arg-type]  # the names of its options
    marked = replace(wished.like, template_id=template.id, template_at=template.updated_at)
    return ConfiguredJobType(kind, marked, on_conflict=wished.on_conflict, tx=wished.tx)


def _checked(kind: JobType[..., Any], params: dict[str, Any]) -> str:
    """All of them together, as the type wants them."""
    return kind.codec.dump(kind.codec.load(to_json(params)))


def _named(params: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    if params is None:
        return {}
    if not isinstance(params, Mapping) or not all(isinstance(each, str) for each in params):
        raise InvalidParams(f"params of template {name} are no mapping; give them by name")
    return dict(params)


def _check_expected(name: str, there: Document | None, expected: datetime | None) -> None:
    if expected is None or (there is not None and there.updated_at == expected):
        return
    now = "is gone" if there is None else f"was changed at {there.updated_at}"
    raise TemplateChanged(f"template {name} {now}; read it again, and edit what it is now")


def _unknown(name: str, known: list[str]) -> TemplateNotFound:
    near = get_close_matches(name, known, n=_NEAR) or known[:_NEAR]
    there = f"near it: {', '.join(near)}" if near else "there are none; save one first"
    return TemplateNotFound(f"no template {repr_short(name)} is in this store; {there}")
