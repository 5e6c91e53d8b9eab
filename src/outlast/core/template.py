"""Templates: stored job definitions."""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from outlast.core.document import Document
from outlast.core.schedule import JobBlueprint
from outlast.core.schedule_codec import making_from

KIND: Final = "template"
"""Kind of the documents that hold templates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A reusable job definition. `params` is the text of a JSON object and may be partial.

    A field that is None has the value of the job type. `id` stays through every edit;
    `updated_at` distinguishes versions.
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
    """Return the document text of a template; the document's key is the name.

    `making` holds the values of the job type, for processes where the type is not registered.
    """
    fields = {
        "id": template_id,
        "type": job_type,
        "params": json.loads(params),
        "queue": queue,
        "priority": priority,
        "max_attempts": max_attempts,
        "making": asdict(making),
    }
    return to_json(fields)


def blueprint_of(record: Document) -> JobBlueprint | None:
    """Return what jobs of the template are made of; None if an earlier release wrote it."""
    fields = json.loads(record.value)
    if "making" not in fields:
        return None
    own = {name: fields[name] for name in ("queue", "priority", "max_attempts")}
    given = {name: value for name, value in own.items() if value is not None}
    return making_from({**fields["making"], **given})


def from_record(record: Document) -> Template:
    """Return the template that a document holds."""
    fields = json.loads(record.value)
    return Template(
        id=fields["id"],
        name=record.key,
        type=fields["type"],
        params=to_json(fields["params"]),
        queue=fields["queue"],
        priority=fields["priority"],
        max_attempts=fields["max_attempts"],
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


def to_json(value: Any) -> str:
    """Return compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
