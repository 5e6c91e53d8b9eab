"""Command lines that handlers return: a list of arguments, never a shell string."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath

from outlast.core.outcome import HandlerOutcome

Text = str | PathLike[str]


@dataclass(frozen=True, slots=True, init=False)
class Command(HandlerOutcome):
    """A command to run: `Command(["tar", "-cf", name, folder])`.

    A handler with `executor="command"` returns it.

    Args:
        argv: The program and its arguments.
        cwd: Working directory; the worker's own if left out.
        env: Variables added to the worker's environment. OUTLAST_JOB_ID, OUTLAST_RUN_ID and
            OUTLAST_TOKEN are always set.
        artifacts: Patterns such as `"out/*.png"`, relative to `cwd`. The files that match after
            the end of the command are recorded.
        ok: Exit codes that mean success; every other code is a failure.

    Raises:
        TypeError: An argument is not text, or `argv` is one text.
        ValueError: `argv` is empty, or a text holds NUL, or a variable name is malformed.
    """

    argv: tuple[str, ...]
    cwd: str | None
    env: Mapping[str, str]
    artifacts: tuple[str, ...]
    ok: frozenset[int]

    def __init__(
        self,
        argv: Sequence[Text],
        *,
        cwd: Text | None = None,
        env: Mapping[str, str] | None = None,
        artifacts: Sequence[Text] = (),
        ok: Collection[int] = (0,),
    ) -> None:
        object.__setattr__(self, "argv", _words(argv, what="argv"))
        object.__setattr__(self, "cwd", None if cwd is None else fspath(cwd))
        object.__setattr__(self, "env", _variables(env or {}))
        object.__setattr__(self, "artifacts", _words(artifacts, what="artifacts"))
        object.__setattr__(self, "ok", frozenset(ok))
        if not self.argv or not self.argv[0]:
            raise ValueError("argv is empty; its first argument is the program to run")


def _words(words: Sequence[Text], *, what: str) -> tuple[str, ...]:
    if isinstance(words, str | bytes):
        raise TypeError(f"{what} is one text; give a list of arguments, since no shell splits it")
    return tuple(_plain(fspath(word), what=what) for word in words)


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not name or "=" in _plain(name, what="a name in env"):
            raise ValueError(f"env names {name!r:.80}; a name is not empty and has no =")
        _plain(value, what=f"env[{name!r:.80}]")
    return dict(env)


def _plain(word: str, *, what: str) -> str:
    if not isinstance(word, str):
        raise TypeError(f"{what} holds {word!r:.80}; use text")
    if "\0" in word:
        raise ValueError(f"{what} holds a NUL, which no command line can carry; remove it")
    return word
