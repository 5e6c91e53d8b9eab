"""How a schedule's plan is kept: as a JSON text that any store can hold."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from outlast.core.delivery import Delivery
from outlast.core.duration import MICROSECOND
from outlast.core.schedule import Fold, Gap, JobBlueprint, Plan, TimeRule


def to_text(plan: Plan) -> str:
    """The plan as JSON; spans are microseconds. Its name is kept beside it."""
    kept = asdict(plan)
    del kept["name"]
    kept["params"] = json.loads(plan.params)
    kept["misfire_grace"] = plan.misfire_grace // MICROSECOND
    kept["jitter"] = plan.jitter // MICROSECOND
    kept["rule"] |= {
        "every": None if plan.rule.every is None else plan.rule.every // MICROSECOND,
        "start": _written(plan.rule.start),
        "end": _written(plan.rule.end),
    }
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


def from_text(name: str, text: str) -> Plan:
    """The plan that `to_text` made."""
    kept = json.loads(text)
    kept["params"] = json.dumps(kept["params"], ensure_ascii=False, separators=(",", ":"))
    kept["misfire_grace"] = timedelta(microseconds=kept["misfire_grace"])
    kept["jitter"] = timedelta(microseconds=kept["jitter"])
    kept["making"] = _making(kept["making"])
    return Plan(**{**kept, "name": name, "rule": _rule(kept["rule"])})


def making_from(kept: dict[str, Any]) -> JobBlueprint:
    """What a template's record says of its type."""
    return _making(kept)


def _making(kept: dict[str, Any]) -> JobBlueprint:
    return JobBlueprint(**{**kept, "delivery": Delivery(kept["delivery"])})


def _rule(kept: dict[str, Any]) -> TimeRule:
    every = kept["every"]
    read = {
        "every": None if every is None else timedelta(microseconds=every),
        "gap": Gap(kept["gap"]),
        "fold": Fold(kept["fold"]),
        "start": _read(kept["start"]),
        "end": _read(kept["end"]),
    }
    return TimeRule(**{**kept, **read})


def _written(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _read(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
