"""Named locks that end with their holder: one locked file each, in a folder beside the database."""

import asyncio
import errno
import os
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from outlast.core.limits import check_name
from outlast.core.worker import SUPERVISED_BOOT_PREFIX
from outlast.errors import OperatorError, StoreReadOnly
from outlast.store.fork_safety import close_in_children
from outlast.store.sqlite.file_modes import file_mode, folder_mode

_DENIED: Final = {errno.EACCES, errno.EPERM, errno.EROFS}

_SINGLE_USE_PREFIXES: Final = ("caller.", SUPERVISED_BOOT_PREFIX)
"""Prefixes of names that are new at every start, so that their files are deleted on release."""


class FileLock:
    """A held lock; the kernel releases it when this process ends, however it ends."""

    def __init__(self, file: int, held: "set[FileLock]", delete_on_release: Path | None) -> None:
        """Join the `held` locks of a store; `delete_on_release` is a single-use file."""
        self._file: int | None = file
        self._delete_on_release = delete_on_release
        self._owner_pid = os.getpid()
        self._held = held
        held.add(self)

    @property
    def is_lost(self) -> bool:
        """False: the kernel keeps the lock for as long as this process has the file open."""
        return False

    async def release(self) -> None:
        """Release the lock; idempotent."""
        await asyncio.to_thread(self.drop)

    def drop(self) -> None:
        """Close the file. That releases the lock, except in a child that inherited the file."""
        file, self._file = self._file, None
        self._held.discard(self)
        if file is not None:
            if self._delete_on_release is not None and os.getpid() == self._owner_pid:
                # Deleted while it is held: a process that opened it before sees that it is gone.
                with suppress(OSError):  # the file then stays, which does no harm
                    self._delete_on_release.unlink()
            os.close(file)


class FileLocks:
    """The named locks beside one database that one store holds."""

    def __init__(self, database: Path) -> None:
        """Use the lock folder of that database file."""
        self._database = database
        self._held: set[FileLock] = set()

    def acquire(self, name: str, *, shared: bool = False) -> FileLock | None:
        """Acquire the lock of that name; None if it is held, in this process or another.

        The file of a shared lock stays, because other holders still use it.
        """
        check_name(name, what="lock name")
        folder = lock_folder(self._database)
        # With the suffix every name is a valid file name, "." and ".." too. On a file system that
        # ignores case two names share one lock: one of them is refused, never are both held.
        path, mode = folder / f"{name}.lock", file_mode(self._database)
        try:
            folder.mkdir(folder_mode(self._database), exist_ok=True)
            is_single_use = name.startswith(_SINGLE_USE_PREFIXES) and not shared
            removed = path if is_single_use else None
            return close_in_children(
                lambda: FileLock(_open_locked(path, mode, shared=shared), self._held, removed)
            )
        except BlockingIOError:
            return None
        except OSError as error:
            raise _translate(error, path) from error

    def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Return the names whose lock is free; acquires each for a moment."""
        return frozenset(name for name in names if self._is_free(name))

    def drop(self) -> None:
        """Release all held locks."""
        for lock in tuple(self._held):
            lock.drop()

    def _is_free(self, name: str) -> bool:
        lock = self.acquire(name)
        if lock is not None:
            lock.drop()
        return lock is not None


def lock_folder(database: Path) -> Path:
    """Return the lock folder beside the database file, with links resolved."""
    resolved = database.resolve()
    return resolved.with_name(f"{resolved.name}-locks")


def _open_locked(path: Path, mode: int, *, shared: bool) -> int:
    """Open and lock the file; raises BlockingIOError if another holder has the lock."""
    try:
        import fcntl  # noqa: PLC0415 - not every system has it
    except ImportError as error:
        raise OSError(errno.ENOTSUP, "this system has no such locks") from error
    flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        with ExitStack() as closing:
            file = os.open(path, flags, mode)
            closing.callback(os.close, file)
            # flock, not a POSIX lock: closing any descriptor of the file would release that one.
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if _is_same_file(file, path):  # else it was deleted, and its lock excludes no process
                closing.pop_all()
                return file


def _is_same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False


def _translate(error: OSError, path: Path) -> OperatorError:
    if error.errno in _DENIED:
        return StoreReadOnly(
            f"{path} cannot be created or opened; allow this user to write in its folder"
        )
    return OperatorError(
        f"{path} cannot be locked ({error}); use a system and a disk that support flock"
    )
