"""Options of a store URL: flags, seconds, and the refusal of unknown ones.

`where` names the store in an error message; it must not contain a password.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from outlast.errors import ConfigurationError

CREDENTIALS: Final = frozenset({"password", "passwd", "pwd", "token", "secret", "user"})
"""Options after which an `&` may belong to a password."""

MAX_SECONDS: Final = 3600.0
"""The longest time that an option may ask for."""


def read_flag(options: Mapping[str, str], name: str, *, where: str, default: bool = False) -> bool:
    """Return the option as a bool; raises ConfigurationError unless it is `true` or `false`."""
    text = options.get(name, "true" if default else "false")
    if text not in {"true", "false"}:
        raise ConfigurationError(f"{where}: {name} is {text!r:.80}; write true or false")
    return text == "true"


def read_seconds(options: Mapping[str, str], name: str, *, where: str, default: float) -> float:
    """Return the option in seconds; raises ConfigurationError unless it is from 0 to 3600."""
    text = options.get(name, str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_SECONDS:
        raise ConfigurationError(f"{where}: {name} is {text!r:.80}; write seconds from 0 to 3600")
    return seconds


def refuse_unknown(options: Mapping[str, str], known: Iterable[str], *, where: str) -> None:
    """Raise ConfigurationError if an option has another name than those known."""
    unknown = options.keys() - set(known)
    if unknown:
        raise ConfigurationError(
            f"{where} has unknown options {shown_names(options, unknown)}; "
            f"known: {', '.join(sorted(known))}"
        )


def shown_names(options: Mapping[str, str], unknown: Iterable[str]) -> str:
    """Return the names of unknown options, unless one may be the rest of a password with an `&`."""
    return "[…]" if options.keys() & CREDENTIALS else str(sorted(unknown))
