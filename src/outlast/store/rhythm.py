"""How often a store wants to be looked at where nobody says otherwise."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingDefaults:
    """The defaults of two settings: a store that nothing wakes, and that is paid by the request,
    wants them rarer."""

    poll: timedelta
    tick: timedelta


@runtime_checkable
class HasPollingDefaults(Protocol):
    """A store with a rhythm of its own."""

    @property
    def polling_defaults(self) -> PollingDefaults: ...
