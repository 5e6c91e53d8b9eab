"""What an id must look like to be one: the database holds UUIDs, callers hand in text."""

import re
from typing import Final

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def known_uuid(text: str | None) -> bool:
    """Whether it is a UUID as we write them; anything else is the id of nothing."""
    return isinstance(text, str) and _UUID.fullmatch(text) is not None
