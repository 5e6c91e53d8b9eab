"""Which text can be kept."""

import json

from outlast.core.decide import Change
from outlast.core.limits import (
    MAX_ERROR,
    MAX_EXIT_CODE,
    MAX_PATH,
    MAX_PAYLOAD,
    MIN_EXIT_CODE,
    is_storable,
)


def is_text(text: str | None, limit: int) -> bool:
    """Whether it can be kept, in at most so many bytes."""
    return text is None or (is_storable(text) and len(text.encode()) <= limit)


def is_json(text: str, limit: int) -> bool:
    """Whether it is JSON that can be kept, of at most so many bytes."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return is_text(text, limit)


def can_be_kept(change: Change) -> bool:
    """Whether everything that a change wants to write can be."""
    return (
        is_text(change.error, MAX_ERROR)
        and (change.result is None or is_json(change.result, MAX_PAYLOAD))
        and _is_path(change.log_path)
        and MIN_EXIT_CODE <= (change.exit_code or 0) <= MAX_EXIT_CODE
    )


def _is_path(text: str | None) -> bool:
    return text is None or (is_storable(text) and 0 < len(text) <= MAX_PATH)
