"""The password of an etcd user: of the URL, else of the environment, else of a file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote

from outlast.errors import ConfigurationError

VARIABLE: Final = "OUTLAST_ETCD_PASSWORD"
FILE_VARIABLE: Final = "OUTLAST_ETCD_PASSWORD_FILE"


def find_password(parts: SplitResult, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the password of the user in the URL; None without a user, or if there is none.

    Raises ConfigurationError if the file of the password cannot be read.
    """
    if parts.username is None:
        return None
    if parts.password is not None:
        return unquote(parts.password)
    given = os.environ if environment is None else environment
    if given.get(VARIABLE):
        return given[VARIABLE]
    return _from_file(given[FILE_VARIABLE]) if given.get(FILE_VARIABLE) else None


def _from_file(name: str) -> str:
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise ConfigurationError(
            f"{FILE_VARIABLE} is {name!r:.200}, which cannot be read: {why}; name a file whose "
            "first line is the password"
        ) from None
    return lines[0] if lines else ""
