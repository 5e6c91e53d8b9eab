"""Running a coroutine that never has to wait, where nobody could wait for it."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """What it answers; RuntimeError if it would have waited for anything.

    One piece of logic so serves stores that ask a server and those that only call a function.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    coroutine.close()
    raise RuntimeError(f"{coroutine} waits for something, where nothing may be waited for")
