"""The password of an etcd user: of the URL, else of the environment, else of a file."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Final
from urllib.parse import SplitResult, unquote

from outlast.errors import ConfigurationError

VARIABLE: Final = "OUTLAST_ETCD_PASSWORD"
FILE_VARIABLE: Final = "OUTLAST_ETCD_PASSWORD_FILE"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


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
    file = find_password_file(parts, given)
    return None if file is None else _from_file(file)


def find_password_file(
    parts: SplitResult, environment: Mapping[str, str] | None = None
) -> Path | None:
    """Return the file that the password of the user is read from; None if it is not from a file."""
    given = os.environ if environment is None else environment
    if parts.username is None or parts.password is not None or given.get(VARIABLE):
        return None
    return Path(given[FILE_VARIABLE]) if given.get(FILE_VARIABLE) else None


def permission_warning(file: Path) -> str | None:
    """Return a warning if the group or others may read or write the file of a password."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return None  # the start has read it; whether it exists now does not matter
    if not mode & _OTHERS:
        return None
    return (
        f"other users of this machine may read the password in {file}; forbid it: "
        f"chmod 600 {quote(str(file))}"
    )


def _from_file(file: Path) -> str:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise ConfigurationError(
            f"{FILE_VARIABLE} is {str(file)!r:.200}, which cannot be read: {why}; name a file "
            "whose first line is the password"
        ) from None
    return lines[0] if lines else ""
