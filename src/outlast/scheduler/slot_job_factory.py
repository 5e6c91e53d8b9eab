"""Builds the job of a slot from the schedule's type or current template, and its params."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from outlast.core.document import Document
from outlast.core.ids import JobId
from outlast.core.job import NewJob, Slot
from outlast.core.limits import MAX_PAYLOAD
from outlast.core.schedule import JobBlueprint, Schedule, series
from outlast.core.template import KIND, blueprint_of, from_record, to_json
from outlast.errors import InvalidSchedule
from outlast.store.contract.documents import Documents


class SlotJobFactories:
    """The factories of one trigger round; each template is read once."""

    def __init__(self, store: Documents) -> None:
        self._store = store
        self._records: dict[str, Document | None] = {}

    async def factory_for(self, schedule: Schedule) -> "SlotJobFactory":
        """Return the factory of a schedule. Raises InvalidSchedule if it cannot build a job."""
        plan = schedule.plan
        if plan.template is None:
            return SlotJobFactory(schedule, plan.making, plan.params, None)
        record = await self._template(plan.template)
        if record is None:
            raise InvalidSchedule(
                f"template {plan.template} is gone; save it again or choose another"
            )
        blueprint = blueprint_of(record)
        if blueprint is not None and plan.job_name is not None:
            blueprint = replace(blueprint, name=plan.job_name)
        if blueprint is None or series(schedule.id, blueprint) != schedule.series:
            raise InvalidSchedule(
                f"template {plan.template} has another delivery or name; save the schedule again"
            )
        params = _merged(record, json.loads(plan.params))
        return SlotJobFactory(schedule, blueprint, params, record)

    async def _template(self, name: str) -> Document | None:
        if name not in self._records:
            self._records[name] = await self._store.document(KIND, name)
        return self._records[name]


class SlotJobFactory:
    """Builds the jobs of one schedule."""

    def __init__(
        self, schedule: Schedule, blueprint: JobBlueprint, params: str, template: Document | None
    ) -> None:
        template_value = None if template is None else from_record(template)
        self.blueprint = blueprint
        self._series = schedule.series
        self._prototype = NewJob(
            id=JobId(""),
            type=blueprint.type,
            name=blueprint.name,
            params=params,
            queue=blueprint.queue,
            delivery=blueprint.delivery,
            priority=blueprint.priority,
            max_attempts=blueprint.max_attempts,
            template_id=None if template_value is None else template_value.id,
            template_at=None if template_value is None else template_value.updated_at,
            schedule_id=schedule.id,
            metadata=blueprint.metadata,
        )

    def job(
        self, job_id: JobId, at: datetime, *, start_within: timedelta | None, key: str | None = None
    ) -> NewJob:
        """Return the job of a slot, which must start within `start_within` after it."""
        slot = Slot(series=self._series, at=at)
        return replace(
            self._prototype, id=job_id, slot=slot, start_within=start_within, active_key=key
        )


def _merged(record: Document, overrides: Mapping[str, Any]) -> str:
    text = to_json({**json.loads(from_record(record).params), **overrides})
    if len(text.encode()) > MAX_PAYLOAD:
        raise InvalidSchedule(
            f"its params and those of its template exceed {MAX_PAYLOAD // 1024} KiB; shorten them"
        )
    return text
