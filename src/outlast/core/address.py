"""Addresses of stores as they may be shown and stored: never with a user, a password or a token.

One function decides for every message, log line, document and `repr`. It shows what it knows to
be harmless: the scheme, the hosts, the path and the options in `SHOWN_OPTIONS`. Of an address
that can be read in two ways, such as one whose password holds a `/`, it shows the scheme only.
"""

import re
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

HIDDEN: Final = "..."
"""Stands for what is not shown."""

SHOWN_OPTIONS: Final = frozenset(
    {
        *("adopt", "busy"),  # SQLite, and etcd
        *("schema", "pooler", "wait", "notify", "host", "port", "sslmode", "sslrootcert"),
        *("dbname", "database", "target_session_attrs"),
        *("tls", "ca", "max_skew", "beat"),
        *("region", "endpoint", "prefix", "most_writes", "tombstones", "shards"),
    }
)
"""Options whose value may be shown: none of them holds a credential."""

_ADDRESS: Final = re.compile(
    r"([a-z][a-z0-9+.-]{0,30})://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.DOTALL
)
_FILE: Final = re.compile(r"(sqlite)://(/)([^?]*)(?:\?(.*))?", re.DOTALL)
_HOST: Final = r"(?:[A-Za-z0-9._%-]*|\[[0-9A-Fa-f:.%]+\])(?::[0-9]{1,5})?"
_HOSTS: Final = re.compile(rf"{_HOST}(?:,{_HOST})*")
_HARMLESS_VALUE: Final = re.compile(r"[\w./:,+ -]*")
_CREDENTIAL_MARKS: Final = frozenset("@:#")


class Address(NamedTuple):
    """The parts of an address that can be read in one way only."""

    scheme: str
    hosts: str
    path: str
    query: str


def read_address(text: str) -> Address | None:
    """Return the parts of an address; None if it cannot be read in one way only.

    Outside `user:password@` no `@` is allowed, since it may end a password with a `/`, `?` or `#`
    in it. A SQLite address names a file, which has no password.
    """
    if found := _FILE.fullmatch(text):
        return Address("sqlite", "", f"/{found[3]}", found[4] or "")
    found = _ADDRESS.fullmatch(text)
    if found is None or found[1] == "sqlite" or found[5] is not None:
        return None
    try:
        urlsplit(text)  # also refuses characters that turn into / ? # @ when they are normalised
    except ValueError:
        return None
    hosts = found[2].rpartition("@")[2]
    if not _HOSTS.fullmatch(hosts) or "@" in f"{found[3]}{found[4]}":
        return None
    return Address(found[1], hosts, found[3], found[4] or "")


def shown_address(address: str) -> str:
    """Return the address as it may be shown or stored. Idempotent."""
    parts = read_address(address)
    if parts is None:
        scheme, mark, _ = address.partition("://")
        return f"{scheme}://{HIDDEN}" if mark and _is_scheme(scheme) else HIDDEN
    path = parts.path if parts.scheme == "sqlite" else _shown_path(parts.path)
    options = "&".join(filter(_is_shown, parts.query.split("&")))
    return f"{parts.scheme}://{parts.hosts}{path}{'?' if options else ''}{options}"


def is_loopback(host: str) -> bool:
    """Return True if a host, with or without a port, is this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def repr_address(address: Any) -> str:
    """Return the address for a message about one that names no store; `repr` of what is no text."""
    return repr(shown_address(address)) if isinstance(address, str) else f"{address!r:.80}"


def _is_scheme(text: str) -> bool:
    return re.fullmatch(r"[a-z][a-z0-9+.-]{0,30}", text) is not None


def _shown_path(path: str) -> str:
    return f"/{HIDDEN}" if _CREDENTIAL_MARKS & set(unquote(path)) else path


def _is_shown(option: str) -> bool:
    name, _, value = option.partition("=")
    if name == "endpoint":
        return shown_address(unquote(value)) == unquote(value)
    return name in SHOWN_OPTIONS and _HARMLESS_VALUE.fullmatch(unquote(value)) is not None
