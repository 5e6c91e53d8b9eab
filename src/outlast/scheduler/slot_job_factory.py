"""From a schedule to the job of one slot: its template as it stands now, its own params over it."""

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
    """Makes the jobs of one round; each template is read once for all of them."""

    def __init__(self, store: Documents) -> None:
        self._store = store
        self._records: dict[str, Document | None] = {}

    async def factory_for(self, schedule: Schedule) -> "SlotJobFactory":
        """What the schedule's jobs are made of now; InvalidSchedule says why none can be made."""
        plan = schedule.plan
        if plan.template is None:
            return SlotJobFactory(schedule, plan.making, plan.params, None)
        record = await self._template(plan.template)
        if record is None:
            raise InvalidSchedule(f"template {plan.template} is gone; save it, or set another")
        making = blueprint_of(record)
        if making is not None and plan.job_name is not None:
            making = replace(making, name=plan.job_name)
        if making is None or series(schedule.id, making) != schedule.series:
            raise InvalidSchedule(
                f"template {plan.template} is of another delivery or name now; save the schedule"
            )
        params = _merged(record, json.loads(plan.params))
        return SlotJobFactory(schedule, making, params, record)

    async def _template(self, name: str) -> Document | None:
        if name not in self._records:
            self._records[name] = await self._store.document(KIND, name)
        return self._records[name]


class SlotJobFactory:
    """What the jobs of a schedule have in common."""

    def __init__(
        self, schedule: Schedule, making: JobBlueprint, params: str, template: Document | None
    ) -> None:
        made_of = None if template is None else from_record(template)
        self.blueprint = making
        self._series = schedule.series
        self._like = NewJob(
            id=JobId(""),
            type=making.type,
            name=making.name,
            params=params,
            queue=making.queue,
            delivery=making.delivery,
            priority=making.priority,
            max_attempts=making.max_attempts,
            template_id=None if made_of is None else made_of.id,
            template_at=None if made_of is None else made_of.updated_at,
            schedule_id=schedule.id,
        )

    def job(
        self, job_id: JobId, at: datetime, *, start_within: timedelta | None, key: str | None = None
    ) -> NewJob:
        """The job of that slot, which must start within that time after it."""
        slot = Slot(series=self._series, at=at)
        return replace(self._like, id=job_id, slot=slot, start_within=start_within, active_key=key)


def _merged(record: Document, overrides: Mapping[str, Any]) -> str:
    text = to_json({**json.loads(from_record(record).params), **overrides})
    if len(text.encode()) > MAX_PAYLOAD:
        raise InvalidSchedule(f"its params and its template's are over {MAX_PAYLOAD // 1024} KiB")
    return text
