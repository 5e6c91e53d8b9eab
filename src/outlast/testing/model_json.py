"""Which text the model store takes."""

import json

from outlast.core.limits import is_storable


def is_text(text: str | None, limit: int) -> bool:
    """Whether a store can keep it, in at most so many bytes."""
    return text is None or (is_storable(text) and len(text.encode()) <= limit)


def is_json(text: str, limit: int) -> bool:
    """Whether it is JSON that a store can keep, of at most so many bytes."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return is_text(text, limit)
