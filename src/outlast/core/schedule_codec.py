"""JSON codec of schedule plans."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from outlast.core.delivery import Delivery
from outlast.core.duration import MICROSECOND
from outlast.core.schedule import Fold, Gap, JobBlueprint, Plan, TimeRule


def to_text(plan: Plan) -> str:
    """Return the plan as JSON text; durations are microseconds. The name is stored beside it."""
    fields = asdict(plan)
    del fields["name"]
    fields["params"] = json.loads(plan.params)
    fields["misfire_grace"] = plan.misfire_grace // MICROSECOND
    fields["jitter"] = plan.jitter // MICROSECOND
    fields["rule"] |= {
        "every": None if plan.rule.every is None else plan.rule.every // MICROSECOND,
        "start": _encode_time(plan.rule.start),
        "end": _encode_time(plan.rule.end),
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def from_text(name: str, text: str) -> Plan:
    """Return the plan that `to_text` encoded."""
    fields = json.loads(text)
    fields["params"] = json.dumps(fields["params"], ensure_ascii=False, separators=(",", ":"))
    fields["misfire_grace"] = timedelta(microseconds=fields["misfire_grace"])
    fields["jitter"] = timedelta(microseconds=fields["jitter"])
    fields["making"] = _decode_blueprint(fields["making"])
    return Plan(**{**fields, "name": name, "rule": _decode_rule(fields["rule"])})


def making_from(fields: dict[str, Any]) -> JobBlueprint:
    """Return the blueprint in a template's document."""
    return _decode_blueprint(fields)


def _decode_blueprint(fields: dict[str, Any]) -> JobBlueprint:
    return JobBlueprint(**{**fields, "delivery": Delivery(fields["delivery"])})


def _decode_rule(fields: dict[str, Any]) -> TimeRule:
    every = fields["every"]
    decoded = {
        "every": None if every is None else timedelta(microseconds=every),
        "gap": Gap(fields["gap"]),
        "fold": Fold(fields["fold"]),
        "start": _decode_time(fields["start"]),
        "end": _decode_time(fields["end"]),
    }
    return TimeRule(**{**fields, **decoded})


def _encode_time(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _decode_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
