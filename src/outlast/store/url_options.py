"""Options of a store URL: flags, numbers, and the refusal of repeated and unknown ones.

`where` names the store in an error message; it must not contain a password.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl

from outlast.errors import ConfigurationError

CREDENTIALS: Final = frozenset({"password", "passwd", "pwd", "token", "secret", "user"})
"""Options after which an `&` may belong to a password."""

MAX_SECONDS: Final = 3600.0
"""The longest time that an option may ask for."""

_WHOLE: Final = re.compile(r"[0-9]{1,9}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def read_options(query: str, *, where: str) -> dict[str, str]:
    """Return the options of a URL's query; raises ConfigurationError if one is repeated."""
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    repeated = {name for name, times in Counter(name for name, _ in pairs).items() if times > 1}
    if repeated:
        raise ConfigurationError(
            f"{where} repeats the options {shown_names(options, repeated)}; write each option once"
        )
    return options


def read_flag(options: Mapping[str, str], name: str, *, where: str, default: bool = False) -> bool:
    """Return the option as a bool; raises ConfigurationError unless it is `true` or `false`."""
    text = options.get(name, "true" if default else "false")
    if text not in {"true", "false"}:
        raise ConfigurationError(f"{where}: {name} is {text!r:.80}; write true or false")
    return text == "true"


def read_seconds(options: Mapping[str, str], name: str, *, where: str, default: float) -> float:
    """Return the option in seconds; raises ConfigurationError unless it is from 0 to 3600."""
    text = options.get(name)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or float(text) > MAX_SECONDS:
        raise ConfigurationError(f"{where}: {name} is {text!r:.80}; write seconds from 0 to 3600")
    return float(text)


def read_count(
    options: Mapping[str, str], name: str, *, where: str, default: int, most: int, least: int = 1
) -> int:
    """Return the option as a whole number from `least` to `most`; or raise ConfigurationError."""
    text = options.get(name)
    if text is None:
        return default
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise ConfigurationError(
            f"{where}: {name} is {text!r:.80}; write a whole number from {least} to {most}: "
            f"{name}={max(least, 8)}"
        )
    return int(text)


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
