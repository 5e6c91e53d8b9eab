"""From an address to a store."""

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from holdfast.clock import Clock
from holdfast.core.ids import Ids
from holdfast.errors import InvalidJob
from holdfast.store.base import Store


def open_store(url: str, *, clock: Clock | None = None, ids: Ids | None = None) -> Store:
    """The store at that address, not yet opened: `sqlite:///jobs.db`, `sqlite:////var/jobs.db`."""
    scheme = url.partition(":")[0] if isinstance(url, str) else ""
    if scheme != "sqlite":
        raise InvalidJob(f"{url!r} is not a store's address; write for example sqlite:///jobs.db")
    return _sqlite(url, clock, ids)


def _sqlite(url: str, clock: Clock | None, ids: Ids | None) -> Store:
    from holdfast.store.sqlite.store import BUSY, SqliteStore  # noqa: PLC0415 - only when chosen

    parts = urlsplit(url)
    name = parts.path.removeprefix("/")
    if parts.netloc or not name or name == ":memory:" or "\0" in url:
        raise InvalidJob(
            f"{url!r} names no file; write sqlite:///jobs.db, or sqlite:////var/lib/jobs.db for "
            "one that starts at the root. Jobs in memory would not survive"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    adopt = _flag(options.pop("adopt", "false"), url)
    busy = _seconds(options.pop("busy", str(BUSY)), url)
    if options:
        raise InvalidJob(f"{url!r} has unknown options {sorted(options)}; known: adopt, busy")
    return SqliteStore(Path(name), clock=clock, ids=ids, busy=busy, adopt=adopt)


def _flag(text: str, url: str) -> bool:
    if text not in {"true", "false"}:
        raise InvalidJob(f"{url!r}: adopt is {text!r}; write true or false")
    return text == "true"


def _seconds(text: str, url: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:  # noqa: PLR2004 - an hour
        raise InvalidJob(f"{url!r}: busy is {text!r}; write seconds from 0 to 3600")
    return seconds
