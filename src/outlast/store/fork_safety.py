"""What a forked child must not keep open: locks and sockets that say that their process lives.

A lock or a socket belongs to an open file, which parent and child share after a fork: it would
outlive the parent for as long as the child does. A program started by exec never gets one, since
Python closes its files there; a plain fork is what this is for.
"""

import os
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import WeakSet


class Closable(Protocol):
    """Something that is let go by closing a file; twice is fine. It must take no lock."""

    def drop(self) -> None: ...


T = TypeVar("T", bound=Closable)

_gate = threading.Lock()
_kept: WeakSet[Closable] = WeakSet()
_is_watching = False
_forks = 0


def close_in_children(make: Callable[[], T]) -> T:
    """What `make` opens; every child forked from now on drops its share of it at once.

    No fork happens meanwhile, so that there is no moment at which a child gets it unseen.
    """
    _watch()
    with _gate:
        made = make()
        _kept.add(made)
    return made


def forks() -> int:
    """How often this process has forked since it was first asked."""
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
