"""From an address to a key-value store: `etcd://host:2379,host2/prefix`, `dynamodb://table`."""

import re
import ssl
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from outlast.clock import Clock
from outlast.core.duration import parse_duration
from outlast.core.ids import Ids
from outlast.core.limits import check_name
from outlast.errors import ConfigurationError, InvalidArgument
from outlast.store.keyvalue.store import MAX_SKEW, KeyValueStore

ETCD: Final = "etcd://host:2379,host2:2379/prefix"
DYNAMODB: Final = "dynamodb://table?region=eu-central-1"
HOUR: Final = 3600.0
_TABLE: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")
DAY: Final = timedelta(days=1)


def etcd_store(url: str, *, clock: Clock | None, ids: Ids | None) -> KeyValueStore:
    """`etcd://user:password@host:2379,host2/prefix?ca=ca.pem&cert=me.pem&key=me.key`."""
    from outlast.store.keyvalue.engines.etcd.client import PATIENCE, Cluster, hosts  # noqa: PLC0415 - same
    from outlast.store.keyvalue.engines.etcd.engine import BEAT, EtcdEngine  # noqa: PLC0415 - only when chosen

    parts, options = _split(url, ETCD, {"tls", "ca", "cert", "key", "max_skew", "beat", "busy"})
    where = parts.netloc.rpartition("@")[2]
    found = tuple(hosts(where))
    if not found:
        raise ConfigurationError(f"{_safe(parts)} names no host; write for example {ETCD}")
    cluster = Cluster(
        hosts=found,
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        tls=_tls(options),
    )
    engine = EtcdEngine(
        cluster,
        prefix=_name(parts.path.strip("/") or "outlast"),
        beat=_seconds(options, "beat", BEAT),
        patience=_seconds(options, "busy", PATIENCE),
    )
    return KeyValueStore(engine, clock=clock, ids=ids, max_skew=_skew(options))


def dynamodb_store(url: str, *, clock: Clock | None, ids: Ids | None) -> KeyValueStore:
    """`dynamodb://table?region=eu-central-1`, and `endpoint=http://127.0.0.1:8000` for a test."""
    from outlast.store.keyvalue.engines.dynamodb.engine import BEAT, MOST_WRITES, DynamoDBEngine  # noqa: PLC0415 - only when chosen

    known = {"region", "endpoint", "prefix", "max_skew", "beat", "most_writes", "tombstones"}
    parts, options = _split(url, DYNAMODB, known)
    engine = DynamoDBEngine(
        _table(parts),
        region=options.get("region"),
        endpoint=_endpoint(options.get("endpoint")),
        prefix=_prefix(options.get("prefix", "")),
        beat=_seconds(options, "beat", BEAT),
        most_writes=int(_seconds(options, "most_writes", MOST_WRITES)),
    )
    return KeyValueStore(
        engine, clock=clock, ids=ids, max_skew=_skew(options), tombstones=_tombstones(options)
    )


def _split(url: str, example: str, known: set[str]) -> tuple[SplitResult, dict[str, str]]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigurationError(
            f"that is no store's address; write for example {example}"
        ) from error
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - known)
    if unknown or parts.fragment:
        raise ConfigurationError(
            f"{_safe(parts)} has unknown options {unknown or ['#']}; known: {sorted(known)}"
        )
    return parts, options


def _safe(parts: SplitResult) -> str:
    """The address without whoever's password is in it."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    if not (_flag(options, "tls") or "ca" in options or "cert" in options):
        return None
    for name in ("ca", "cert", "key"):
        if name in options and not Path(options[name]).is_file():
            raise ConfigurationError(f"{name} is {options[name]!r:.80}, and there is no such file")
    context = ssl.create_default_context(cafile=options.get("ca"))
    if "cert" in options:
        context.load_cert_chain(options["cert"], options.get("key"))
    return context


def _table(parts: SplitResult) -> str:
    if not _TABLE.fullmatch(parts.netloc) or parts.path.strip("/"):
        raise ConfigurationError(
            f"{_safe(parts)} names no table: one has 3 to 255 of the characters A-Z a-z 0-9 _ . -; "
            f"write for example {DYNAMODB}"
        )
    return parts.netloc


def _endpoint(text: str | None) -> str | None:
    if text is None or re.fullmatch(r"https?://[^/\s]+/?", text):
        return text
    raise ConfigurationError(f"endpoint is {text!r:.80}; write for example http://127.0.0.1:8000")


def _prefix(text: str) -> str:
    return _name(text) if text else ""


def _name(text: str) -> str:
    try:
        return check_name(text, what="prefix")
    except InvalidArgument as error:
        raise ConfigurationError(str(error)) from error


def _skew(options: Mapping[str, str]) -> timedelta:
    return timedelta(seconds=_seconds(options, "max_skew", MAX_SKEW.total_seconds()))


def _tombstones(options: Mapping[str, str]) -> timedelta | None:
    """At least a day: a key that is free again within hours would be none."""
    if "tombstones" not in options:
        return None
    try:
        span = parse_duration(options["tombstones"], what="tombstones")
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    if span < DAY:
        raise ConfigurationError(
            f"tombstones is {options['tombstones']!r:.80}; write a day or more: 400d"
        )
    return span


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false")
    if text not in {"true", "false"}:
        raise ConfigurationError(f"{name} is {text!r:.80}; write true or false")
    return text == "true"


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= HOUR:
        raise ConfigurationError(f"{name} is {options[name]!r:.80}; write a number from 0 to 3600")
    return seconds
