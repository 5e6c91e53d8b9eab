"""Processes that a test starts, talks to through a pipe, and kills."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self

from outlast.testing.conformance.fork_server import quick_start

from .timeouts import PATIENCE

Part = Callable[..., Coroutine[Any, Any, None] | None]
"""What a process plays; it gets its end of the pipe first."""


class Child:
    """A process of its own that plays a part and tells what it did, until it is killed."""

    def __init__(self, part: Part, *given: Any) -> None:
        self._ear, mouth = quick_start().Pipe(duplex=True)
        args = dict(os.environ), part, mouth, *given
        self._process = quick_start().Process(target=_play, args=args, daemon=True)
        self._process.start()
        mouth.close()

    def hear(self) -> Any:
        """The next thing it tells."""
        assert self._ear.poll(PATIENCE), "the child says nothing"
        return self._ear.recv()

    def hear_all(self) -> list[Any]:
        """Everything it still has to tell until its end."""
        reported = []
        try:
            while True:
                reported.append(self.hear())
        except EOFError:
            return reported

    def tell(self, word: Any) -> None:
        self._ear.send(word)

    def kill(self) -> None:
        """SIGKILL: no handler, no flush, no goodbye."""
        self._process.kill()
        self._process.join()

    def kill_within(self, seconds: float) -> None:
        """The same at that moment, or as soon as it has told something; nothing is left of it."""
        self._ear.poll(seconds)
        self.__exit__(None, None, None)

    def end(self) -> int:
        """Wait for it to end by itself; its exit code."""
        self._process.join(PATIENCE)
        code = self._process.exitcode
        assert code is not None, "the child does not end"
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._ear.close()
        self._process.close()


def _play(environment: Mapping[str, str], part: Part, *given: Any) -> None:
    os.environ.update(environment)  # a child has that of the process it was forked from
    played = part(*given)
    if played is not None:
        asyncio.run(played)


def ask(part: Part, *given: Any) -> Any:
    """What a fresh process answers: the one thing it tells."""
    with Child(part, *given) as child:
        answer = child.hear()
        assert child.end() == 0
        return answer


def race(part: Part, number: int, *given: Any) -> list[Any]:
    """What each of that many processes tells, all let go at one moment."""
    children = [Child(part, *given) for _ in range(number)]
    try:
        assert [child.hear() for child in children] == ["ready"] * number
        for child in children:
            child.tell("go")
        return [child.hear() for child in children]
    finally:
        for child in children:
            child.__exit__(None, None, None)
