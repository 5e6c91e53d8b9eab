"""How far a run says it is, as the JSON text that is stored."""

import json
from dataclasses import dataclass
from typing import Final

from outlast.core.limits import truncate
from outlast.errors import RunError

MAX_MESSAGE: Final = 512
_MOST: Final = 2**53


@dataclass(frozen=True, slots=True)
class Progress:
    """So much is done, of so much, and what is under way."""

    done: float
    total: float | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        _check_number(self.done, "done")
        if self.total is not None:
            _check_number(self.total, "total")
        if self.message is not None and not isinstance(self.message, str):
            raise RunError(f"progress message is {self.message!r:.80}; use text")

    def to_json(self) -> str:
        """The text to store; a long message is cut."""
        message = None if self.message is None else truncate(self.message, MAX_MESSAGE)
        parts = {"done": self.done, "total": self.total, "message": message}
        return json.dumps({name: part for name, part in parts.items() if part is not None})


def _check_number(value: float, what: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= _MOST:  # which no NaN is
        raise RunError(f"progress {what} is {value!r:.80}; use a number up to {_MOST:,}")
