"""Which statement finds the jobs that a filter asks for, so that rare ones cost what they are."""

from typing import Any, Final

from outlast.core.state import State
from outlast.store.contract.jobs import Filter
from outlast.store.postgres.uuids import is_uuid

FEW: Final = frozenset({"jobs.find_id", "jobs.find_key"})
"""Statements that know nothing of the rest of the filter: what they find is looked at here."""

_LOWEST: Final = "00000000-0000-0000-0000-000000000000"
_HIGHEST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"

NONE: Final[tuple[None, dict[str, Any]]] = (None, {})
"""No job can fit: its id, or its group's, would be none."""


def question(what: Filter) -> tuple[str | None, dict[str, Any]]:
    """The statement's name and what it is asked."""
    if what.key is not None:
        return "jobs.find_key", {"key": what.key}
    if what.prefix is not None:
        return _by_id(what.prefix)
    states = None if what.states is None else sorted(what.states)
    asked: dict[str, Any] = {"queue": what.queue, "type": what.type, "states": states}
    if what.group is not None:
        return ("groups.members", {**asked, "group": what.group}) if is_uuid(what.group) else NONE
    if what.states is not None and State.SUCCEEDED not in what.states:
        return "jobs.find_live", asked
    return "jobs.find", asked


def _by_id(prefix: str) -> tuple[str | None, dict[str, Any]]:
    """From the lowest id that begins so to the highest."""
    first, last = (prefix + rest[len(prefix) :] for rest in (_LOWEST, _HIGHEST))
    if not (is_uuid(first) and is_uuid(last)):
        return NONE
    return "jobs.find_id", {"first": first, "last": last}
