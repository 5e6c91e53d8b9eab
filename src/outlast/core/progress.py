"""Progress of a run, as the JSON text that is stored."""

import json
from dataclasses import dataclass
from typing import Final

from outlast.core.envelope import label
from outlast.core.limits import truncate
from outlast.errors import RunError

MAX_MESSAGE: Final = 512  # characters
BAR_WIDTH: Final = 10
"""Characters of a progress bar."""

_MAX_NUMBER: Final = 2**53


@dataclass(frozen=True, slots=True)
class Progress:
    """Work done, total work if known, and a message."""

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
        """Return the text to store; a long message is truncated."""
        message = None if self.message is None else truncate(self.message, MAX_MESSAGE)
        parts = {"done": self.done, "total": self.total, "message": message}
        return json.dumps({name: part for name, part in parts.items() if part is not None})

    def __str__(self) -> str:
        """Return it for people: `[#####-----] 50 % 5/10 copying`, without a total `5 copying`."""
        words = [f"{_number(self.done)}", self.message or ""]
        if self.total is not None and self.total > 0:
            share = min(1.0, max(0.0, self.done / self.total))
            filled = "#" * int(share * BAR_WIDTH)
            words[0] += f"/{_number(self.total)}"
            words.insert(0, f"[{filled:-<{BAR_WIDTH}}] {int(share * 100)} %")
        return " ".join(filter(None, words))


def describe_progress(stored: str) -> str:
    """Return stored progress for people; a text that is not progress stays as it is."""
    if (shown := label(stored)) is not None:
        return shown
    try:
        return str(Progress(**json.loads(stored)))
    except (ValueError, TypeError, RecursionError, RunError):
        return stored


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}".rstrip("0").rstrip(".")


def _check_number(value: float, what: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= _MAX_NUMBER:  # false for NaN
        raise RunError(f"progress {what} is {value!r:.80}; use a number up to {_MAX_NUMBER:,}")
