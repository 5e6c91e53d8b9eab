"""Templates: stored job definitions, and how their params and a caller's come together."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from outlast.core.document import Document
from outlast.core.schedule import JobBlueprint
from outlast.core.schedule_codec import making_from

KIND: Final = "template"
"""The kind of record a template is kept as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A job to be made many times. `params` is the text of a JSON object and may be partial.

    What is None is as the type says. `id` stays through every edit; `updated_at` tells one
    version from the next.
    """

    id: str
    name: str
    type: str
    params: str
    queue: str | None
    priority: int | None
    max_attempts: int | None
    created_at: datetime
    updated_at: datetime


def merge(
    template: Template, overrides: Mapping[str, Any], call: Mapping[str, Any]
) -> dict[str, Any]:
    """The params of a job: the call's, over a schedule's overrides, over the template's own.

    Whole values at the top level; all of them as JSON has them.
    """
    own: dict[str, Any] = json.loads(template.params)
    return {**own, **overrides, **call}


def to_value(
    *,
    template_id: str,
    job_type: str,
    params: str,
    queue: str | None,
    priority: int | None,
    max_attempts: int | None,
    making: JobBlueprint,
) -> str:
    """The text of a template's record; its name is the key.

    `making` is what the type itself says, for whoever makes jobs where it is not known.
    """
    kept = {
        "id": template_id,
        "type": job_type,
        "params": json.loads(params),
        "queue": queue,
        "priority": priority,
        "max_attempts": max_attempts,
        "making": asdict(making),
    }
    return to_json(kept)


def blueprint_of(record: Document) -> JobBlueprint | None:
    """What the template's jobs are made of; None if an earlier release wrote it."""
    kept = json.loads(record.value)
    if "making" not in kept:
        return None
    own = {name: kept[name] for name in ("queue", "priority", "max_attempts")}
    given = {name: value for name, value in own.items() if value is not None}
    return making_from({**kept["making"], **given})


def from_record(record: Document) -> Template:
    """The template that record keeps."""
    kept = json.loads(record.value)
    return Template(
        id=kept["id"],
        name=record.key,
        type=kept["type"],
        params=to_json(kept["params"]),
        queue=kept["queue"],
        priority=kept["priority"],
        max_attempts=kept["max_attempts"],
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


def to_json(value: Any) -> str:
    """Plain values as short JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
