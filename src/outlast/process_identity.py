"""Names that say which process made them, and the kernel's proof that this process is dead.

Such a name is `prefix.scope.pid.start.unique`. The scope stands for the machine's present boot and
the namespaces of the process: within one scope a pid means one process at a time, and the start
time tells it from later processes of the same pid. Linux only; elsewhere nothing is ever proved.
"""

import hashlib
import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from outlast.clock import SystemClock

UNKNOWN_SCOPE: Final = "unknown"
"""Scope of a process whose namespaces cannot be read; no process of it is ever proved dead."""

_NAMESPACES: Final = ("pid", "net", "time")
"""They decide what a pid, a socket name and a start time mean."""

_SCOPE_LENGTH: Final = 16
_NAME: Final = re.compile(r"[a-z]+\.([0-9a-f]{16})\.([1-9][0-9]{0,8})\.([0-9]{1,19})\..+", re.ASCII)


def default_instance_id() -> str:
    """Return the instance id of an embedded worker: the host and the pid."""
    host = re.sub(r"[^A-Za-z0-9_.:-]", "-", socket.gethostname()) or "host"
    return f"{host[:100]}-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class _ProcessStatus:
    """The part of `/proc/PID/stat` that tells a living process from a later one and a zombie."""

    start: int  # in clock ticks since the machine's boot
    is_zombie: bool

    @classmethod
    def read(cls, pid: int) -> Self:
        """Return the status of a process; raises OSError if it is gone or hidden."""
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        fields = text.rpartition(")")[2].split()  # from field 3 on: the name may have blanks
        is_zombie = fields[0] in "ZX" and int(fields[17]) <= 1  # no other thread of it runs
        return cls(start=int(fields[19]), is_zombie=is_zombie)


def process_scope() -> str:
    """Return the scope of this process; not cached, because a fork may change its namespaces."""
    try:
        if str(Path("/proc/self").readlink()) != str(os.getpid()):  # /proc of another pid namespace
            return UNKNOWN_SCOPE
        namespaces = [_namespace(kind) for kind in _NAMESPACES]
    except OSError:
        return UNKNOWN_SCOPE
    parts = [SystemClock().boot_id(), *namespaces]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:_SCOPE_LENGTH]


def process_name(prefix: str, unique: str) -> str:
    """Return a new name of this process; `prefix` ends with a dot."""
    scope, pid = process_scope(), os.getpid()
    start = 0 if scope == UNKNOWN_SCOPE else _ProcessStatus.read(pid).start
    return f"{prefix}{scope}.{pid}.{start}.{unique}"


def proved_dead(names: Iterable[str]) -> frozenset[str]:
    """Return the names whose process is dead, with every process that keeps its mark.

    For any other name nothing is proved: its process may run on another machine or in another
    container, or the name may not say which process made it.
    """
    return frozenset(
        match[0]
        for match in _of_this_scope(names)
        if _is_gone(int(match[2]), int(match[3])) and not _is_marked(match[0])
    )


def proved_running(names: Iterable[str]) -> frozenset[str]:
    """Return the names whose process exists on this machine, also if it is frozen."""
    return frozenset(
        match[0] for match in _of_this_scope(names) if not _is_gone(int(match[2]), int(match[3]))
    )


def _of_this_scope(names: Iterable[str]) -> list[re.Match[str]]:
    scope = process_scope()
    return [match for name in names if (match := _NAME.fullmatch(name)) and match[1] == scope]


class ProcessMark:
    """A name of this process that also stands for its child processes.

    The kernel keeps the mark until every process is dead that has its file open: a socket, bound
    to the name in Linux's abstract namespace. A child process keeps it if it inherits the file.
    """

    def __init__(self, prefix: str, unique: str) -> None:
        """Create the name and the mark; without the mark the name says nothing of its process."""
        self.name = process_name(prefix, unique)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(_address(self.name))
        except OSError:  # another system than Linux, or a rule that forbids it
            self.name = f"{prefix}{unique}"

    def fileno(self) -> int:
        """Return the file to pass on."""
        return self._socket.fileno()

    def close(self) -> None:
        """End the mark of this process; idempotent."""
        self._socket.close()


def keep_mark(file: int) -> None:
    """Keep an inherited mark until this process ends; processes that it forks do not keep it."""
    inherited = socket.socket(fileno=file)
    os.register_at_fork(after_in_child=inherited.close)  # the hook keeps the socket open here


def _namespace(kind: str) -> str:
    try:
        return str(Path(f"/proc/self/ns/{kind}").readlink())
    except FileNotFoundError:
        if kind == "time":  # kernels before 5.6 have no time namespaces
            return ""
        raise


def _is_gone(pid: int, start: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it exists, and belongs to another user
    try:
        status = _ProcessStatus.read(pid)
    except OSError:  # hidden from this user, or it ended just now
        return False
    return status.start != start or status.is_zombie


def _is_marked(name: str) -> bool:
    """Whether a process keeps the mark; two checks at once may each see the other's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(_address(name))
        except OSError:
            return True
    return False


def _address(name: str) -> str:
    return f"\0outlast.{name}"
