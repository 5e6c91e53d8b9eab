"""Named locks that die with their holder: one file each, in a folder beside the database."""

import asyncio
import errno
import os
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path

from outlast.core.limits import check_name
from outlast.core.worker import SUPERVISED_BOOT_PREFIX
from outlast.errors import OperatorError, StoreReadOnly
from outlast.store.fork_safety import close_in_children

DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}

PASSING = ("caller.", SUPERVISED_BOOT_PREFIX)
"""How names begin that are used once: callers and workers make up a new one at every start."""


class FileLock:
    """A lock that is held: the kernel takes it back when this process ends, however it ends."""

    def __init__(self, file: int, among: "set[FileLock]", passing: Path | None) -> None:
        """`passing` is where the file is, if nobody will want its name again."""
        self._file: int | None = file
        self._passing = passing
        self._owner = os.getpid()
        self._among = among
        among.add(self)

    @property
    def is_lost(self) -> bool:
        return False  # the kernel keeps it for as long as this process has its file

    async def release(self) -> None:
        await asyncio.to_thread(self.drop)

    def drop(self) -> None:
        """Close the file. That frees the lock, unless this is a child that only inherited it."""
        file, self._file = self._file, None
        self._among.discard(self)
        if file is not None:
            if self._passing is not None and os.getpid() == self._owner:
                # While it is held: whoever opened it before will see that it is not there.
                with suppress(OSError):  # then it stays, and harms nobody
                    self._passing.unlink()
            os.close(file)


class FileLocks:
    """The locks beside one database that one store holds."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._held: set[FileLock] = set()

    def take(self, name: str, *, shared: bool = False) -> FileLock | None:
        """Take the lock of that name; None if anybody has it, this process included.

        A file that is shared stays: whoever leaves first must not take it from the others.
        """
        check_name(name, what="lock name")
        folder = lock_folder(self._database)
        # With the ending every name is a file's, "." and ".." too. Where the file system does not
        # tell A from a, two names share a lock: then one is refused, and never are both held.
        path = folder / f"{name}.lock"
        try:
            folder.mkdir(exist_ok=True)
            passing = path if name.startswith(PASSING) and not shared else None
            return close_in_children(
                lambda: FileLock(_locked(path, shared=shared), self._held, passing)
            )
        except BlockingIOError:
            return None
        except OSError as error:
            raise _refusal(error, path) from error

    def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Those that can be taken, each for a moment."""
        return frozenset(name for name in names if self._is_vacant(name))

    def _is_vacant(self, name: str) -> bool:
        taken = self.take(name)
        if taken is not None:
            taken.drop()
        return taken is not None

    def drop(self) -> None:
        """Let go of all of them."""
        for held in tuple(self._held):
            held.drop()


def lock_folder(database: Path) -> Path:
    """Beside the file itself, whichever link led to it."""
    resolved = database.resolve()
    return resolved.with_name(f"{resolved.name}-locks")


def _locked(path: Path, *, shared: bool) -> int:
    """The file, opened and locked; BlockingIOError if somebody has the lock."""
    try:
        import fcntl  # noqa: PLC0415 - not every system has it
    except ImportError as error:
        raise OSError(errno.ENOTSUP, "this system has no such locks") from error
    flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        with ExitStack() as closing:
            file = os.open(path, flags, 0o644)
            closing.callback(os.close, file)
            # Not a lock of POSIX: that is lost as soon as anybody in this process closes the file.
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if _is_still_there(file, path):  # if not, it was tidied away and excludes nobody
                closing.pop_all()
                return file


def _is_still_there(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False


def _refusal(error: OSError, path: Path) -> OperatorError:
    if error.errno in DENIED:
        return StoreReadOnly(f"{path} cannot be made or opened; check who may write in its folder")
    return OperatorError(f"{path} cannot be locked ({error}); use a system and a disk with locks")
