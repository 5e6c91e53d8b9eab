"""Which statement finds the jobs that a filter asks for, so that rare ones cost what they are."""

from typing import Any, Final

from outlast.core.state import State
from outlast.store.contract.jobs import Filter

FEW: Final = frozenset({"jobs.find_id", "jobs.find_key"})
"""Statements that know nothing of the rest of the filter: what they find is looked at here."""


def select_for(what: Filter) -> tuple[str, dict[str, Any]]:
    """The statement's name and what it is asked."""
    if what.key is not None:
        return "jobs.find_key", {"key": what.key}
    if what.prefix is not None:
        return "jobs.find_id", {"prefix": what.prefix}
    states = None if what.states is None else sorted(what.states)
    asked: dict[str, Any] = {"queue": what.queue, "type": what.type, "states": states}
    if what.group is not None:
        return "groups.members", {**asked, "group": what.group}
    if what.states is not None and State.SUCCEEDED not in what.states:
        return "jobs.find_live", asked
    return "jobs.find", asked
