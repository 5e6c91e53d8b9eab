"""What an id must look like to be one: the database holds UUIDs, callers hand in text."""

import re
from collections.abc import Sequence
from typing import Final

_ONE: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_UUID: Final = re.compile(_ONE)
_UUIDS: Final = re.compile(f"(?:{_ONE},)+")
_LENGTH: Final = 37
"""Of one and its comma."""


def is_uuid(text: str | None) -> bool:
    """Whether it is a UUID as we write them; anything else is the id of nothing."""
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


def known_uuids(texts: Sequence[str]) -> bool:
    """Whether each of them is; quicker than one by one."""
    try:
        joined = ",".join(texts) + ","
    except TypeError:
        return False
    return len(joined) == _LENGTH * len(texts) and _UUIDS.fullmatch(joined) is not None
