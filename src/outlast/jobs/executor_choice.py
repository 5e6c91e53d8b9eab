"""Choice of the executor of a handler, and how each executor stops a run."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from outlast.errors import InvalidType

ExecutorName = Literal["async", "thread", "process", "command"]
Stops = Literal["now", "at the next await", "at a checkpoint"]

STOPS: Final[Mapping[ExecutorName, Stops]] = MappingProxyType(
    {
        "async": "at the next await",
        "thread": "at a checkpoint",
        "process": "now",
        "command": "now",
    }
)
"""When a run stops after a stop request. `now`: its process is killed."""


def choose_executor(
    function: Callable[..., Any], asked: str | None, type_name: str
) -> ExecutorName:
    """Return the executor of a handler: the one asked for, or the one of its signature.

    InvalidType if the two contradict each other.
    """
    own: ExecutorName = "async" if inspect.iscoroutinefunction(function) else "thread"
    where = f'job type "{type_name}"'
    match asked:
        case None:
            return own
        case "process":
            _check_findable(function, where)
            return "process"
        case "command" if own == "async":
            raise InvalidType(f"{where}: a command handler only says what to run; make it a `def`")
        case "command":
            return "command"
        case "async" | "thread" if asked == own:
            return own
        case "async" | "thread":
            kind = "async def" if own == "async" else "def"
            raise InvalidType(f"{where}: it is a `{kind}`, so executor {asked} contradicts it")
        case _:
            known = ", ".join(get_args(ExecutorName))
            raise InvalidType(f"{where}: executor is {asked!r:.80}; use one of {known}")


def _check_findable(function: Callable[..., Any], where: str) -> None:
    """Require a module-level function: the executor's process imports its module to find it."""
    name = str(getattr(function, "__qualname__", ""))
    if "<" in name:
        raise InvalidType(
            f"{where}: its handler is {name}, which another process could not find; define it "
            "with `def` at the top level of its module"
        )
