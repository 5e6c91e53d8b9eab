"""UUID validation: columns are of type uuid, callers pass text."""

import re
from collections.abc import Sequence
from typing import Final

_PATTERN: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_UUID: Final = re.compile(_PATTERN)
_UUIDS: Final = re.compile(f"(?:{_PATTERN},)+")
_LENGTH_WITH_COMMA: Final = 37


def is_uuid(text: str | None) -> bool:
    """Return whether the text is a UUID in lower case with hyphens."""
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


def are_uuids(texts: Sequence[str]) -> bool:
    """Return whether every text is a UUID; one match is faster than many."""
    try:
        joined = ",".join(texts) + ","
    except TypeError:
        return False
    return len(joined) == _LENGTH_WITH_COMMA * len(texts) and _UUIDS.fullmatch(joined) is not None
