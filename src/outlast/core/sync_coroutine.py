"""Run a coroutine that never suspends, from synchronous code."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends.

    One piece of logic thus serves stores that await a server and stores that call functions.

    Raises:
        RuntimeError: The coroutine suspended.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    coroutine.close()
    raise RuntimeError(f"{coroutine} suspended, and synchronous code cannot wait for it")
