"""Closes locks and sockets in forked children, because they prove that their process is alive.

A lock or a socket belongs to an open file, which parent and child share after a fork, so it would
outlive the parent for as long as the child lives. Programs started by exec are not affected:
Python closes these files there.
"""

import os
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import WeakSet


class Closable(Protocol):
    """Something that closes a file."""

    def drop(self) -> None:
        """Close the file; idempotent, and must not acquire a lock."""
        ...


T = TypeVar("T", bound=Closable)

_gate = threading.Lock()
_kept: WeakSet[Closable] = WeakSet()
_is_watching = False
_forks = 0


def close_in_children(make: Callable[[], T]) -> T:
    """Return what `make` opens; every child forked from now on drops it at once.

    A lock keeps other threads from forking meanwhile, so that no child inherits it unnoticed.
    """
    _watch()
    with _gate:
        made = make()
        _kept.add(made)
    return made


def forks() -> int:
    """Return how often this process has forked since the first call."""
    _watch()
    return _forks


def _watch() -> None:
    global _is_watching  # noqa: PLW0603 - Python keeps its hooks for ever, so there is one set
    with _gate:
        if not _is_watching and hasattr(os, "register_at_fork"):
            _is_watching = True
            os.register_at_fork(
                before=_gate.acquire, after_in_parent=_count, after_in_child=_drop_all
            )


def _count() -> None:
    global _forks  # noqa: PLW0603 - of the process, as the hooks are
    _forks += 1
    _gate.release()


def _drop_all() -> None:
    for each in tuple(_kept):
        each.drop()
    _kept.clear()
    _gate.release()
