"""Command lines that handlers return: a list of arguments, never a shell string."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import PathLike, fspath
from typing import Final

from outlast.core.outcome import HandlerOutcome

Text = str | PathLike[str]

INHERITED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "LC_*"),
    *("TMPDIR", "TMP", "TEMP", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"),
)
"""Variables of the worker that every command gets; they say where and how, and hold no secret."""


@dataclass(frozen=True, slots=True, init=False)
class Command(HandlerOutcome):
    """A command to run: `Command(["tar", "-cf", name, folder])`.

    A handler with `executor="command"` returns it.

    Args:
        argv: The program and its arguments.
        cwd: Working directory; the worker's own if left out.
        env: Variables of the command. OUTLAST_JOB_ID, OUTLAST_RUN_ID and OUTLAST_TOKEN are
            always set.
        inherit: Names of further variables that the command gets from the worker, such as
            `"AWS_*"`; `"*"` is all of them. Without it a command gets `PATH`, `HOME`, the locale
            and the like, and never the URL of the store.
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
    inherit: tuple[str, ...]
    artifacts: tuple[str, ...]
    ok: frozenset[int]

    def __init__(
        self,
        argv: Sequence[Text],
        *,
        cwd: Text | None = None,
        env: Mapping[str, str] | None = None,
        inherit: Sequence[str] = (),
        artifacts: Sequence[Text] = (),
        ok: Collection[int] = (0,),
    ) -> None:
        object.__setattr__(self, "argv", _words(argv, what="argv"))
        object.__setattr__(self, "cwd", None if cwd is None else fspath(cwd))
        object.__setattr__(self, "env", _variables(env or {}))
        object.__setattr__(self, "inherit", _words(inherit, what="inherit"))
        object.__setattr__(self, "artifacts", _words(artifacts, what="artifacts"))
        object.__setattr__(self, "ok", frozenset(ok))
        if not self.argv or not self.argv[0]:
            raise ValueError("argv is empty; its first argument is the program to run")

    def environment(self, worker: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the command, of which it inherits some from the worker."""
        wanted = (*INHERITED, *self.inherit)
        return {
            name: value
            for name, value in worker.items()
            if any(fnmatchcase(name, pattern) for pattern in wanted)
        } | dict(self.env)


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
