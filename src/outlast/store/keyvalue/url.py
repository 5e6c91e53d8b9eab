"""URL to key-value store: `etcd://host:2379,host2/prefix`, `dynamodb://table`."""

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from outlast.clock import Clock
from outlast.core.address import repr_address, shown_address
from outlast.core.duration import parse_duration
from outlast.core.ids import Ids
from outlast.core.limits import check_name
from outlast.errors import ConfigurationError, InvalidArgument
from outlast.store.keyvalue.shards import MAX_SHARDS
from outlast.store.keyvalue.store import MAX_SKEW, KeyValueStore
from outlast.store.url_options import refuse_unknown

ETCD: Final = "etcd://host:2379,host2:2379/prefix"
DYNAMODB: Final = "dynamodb://table?region=eu-central-1"
MAX_SECONDS: Final = 3600.0
_TABLE: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")
MIN_TOMBSTONES: Final = timedelta(days=1)


def etcd_store(url: str, *, clock: Clock | None, ids: Ids | None) -> KeyValueStore:
    """Return the store of an etcd URL.

    For example `etcd://user@host:2379,host2/prefix?ca=ca.pem&cert=me.pem&key=me.key`, with the
    password in OUTLAST_ETCD_PASSWORD.
    Raises ConfigurationError if the URL is malformed.
    """
    from outlast.store.keyvalue.engines.etcd.client import TOTAL_TIMEOUT_S, Cluster, hosts  # noqa: PLC0415 - same
    from outlast.store.keyvalue.engines.etcd.engine import BEAT, EtcdEngine  # noqa: PLC0415 - only when chosen
    from outlast.store.keyvalue.engines.etcd.password import find_password  # noqa: PLC0415 - same
    from outlast.store.keyvalue.engines.etcd.tls import tls_context  # noqa: PLC0415 - same

    known = {"tls", "ca", "cert", "key", "max_skew", "beat", "busy", "shards"}
    parts, options = _split(url, known)
    where = parts.netloc.rpartition("@")[2]
    found = tuple(hosts(where))
    if not found:
        raise ConfigurationError(f"{shown_address(url)} names no host; write for example {ETCD}")
    cluster = Cluster(
        hosts=found,
        user=None if parts.username is None else unquote(parts.username),
        password=find_password(parts),
        tls=tls_context(options),
    )
    engine = EtcdEngine(
        cluster,
        prefix=_name(parts.path.strip("/") or "outlast"),
        beat=_seconds(options, "beat", BEAT),
        timeout=_seconds(options, "busy", TOTAL_TIMEOUT_S),
    )
    return KeyValueStore(
        engine,
        clock=clock,
        ids=ids,
        max_skew=_skew(options),
        shards=_shards(options),
        address=partial(_with_shards, shown_address(url)),
    )


def dynamodb_store(url: str, *, clock: Clock | None, ids: Ids | None) -> KeyValueStore:
    """Return the store of a DynamoDB URL.

    For example `dynamodb://table?region=eu-central-1`; `endpoint=http://127.0.0.1:8000` for tests.
    Raises ConfigurationError if the URL is malformed.
    """
    from outlast.store.keyvalue.engines.dynamodb.engine import BEAT, MOST_WRITES, DynamoDBEngine  # noqa: PLC0415 - only when chosen

    known = {"region", "endpoint", "prefix", "max_skew", "beat", "most_writes", "tombstones"}
    parts, options = _split(url, {*known, "shards"})
    engine = DynamoDBEngine(
        _table(parts, url),
        region=options.get("region"),
        endpoint=_endpoint(options.get("endpoint")),
        prefix=_prefix(options.get("prefix", "")),
        beat=_seconds(options, "beat", BEAT),
        most_writes=int(_seconds(options, "most_writes", MOST_WRITES)),
    )
    return KeyValueStore(
        engine,
        clock=clock,
        ids=ids,
        max_skew=_skew(options),
        tombstones=_tombstones(options),
        shards=_shards(options),
        address=partial(_with_shards, shown_address(url)),
    )


def _split(url: str, known: set[str]) -> tuple[SplitResult, dict[str, str]]:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.fragment:
        options["#"] = ""
    refuse_unknown(options, known, where=shown_address(url))
    return parts, options


def _table(parts: SplitResult, url: str) -> str:
    if not _TABLE.fullmatch(parts.netloc) or parts.path.strip("/"):
        raise ConfigurationError(
            f"{shown_address(url)} names no table: one has 3 to 255 of the characters "
            f"A-Z a-z 0-9 _ . -; write for example {DYNAMODB}"
        )
    return parts.netloc


def _endpoint(text: str | None) -> str | None:
    if text is None or re.fullmatch(r"https?://[^/\s@?#]+/?", text):
        return text
    raise ConfigurationError(
        f"endpoint is {repr_address(text)}; write for example http://127.0.0.1:8000"
    )


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
    """Return how long tombstones stay: at least a day, or None."""
    if "tombstones" not in options:
        return None
    try:
        span = parse_duration(options["tombstones"], what="tombstones")
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    if span < MIN_TOMBSTONES:
        raise ConfigurationError(
            f"tombstones is {options['tombstones']!r:.80}; write a day or more: 400d"
        )
    return span


def _shards(options: Mapping[str, str]) -> int:
    text = options.get("shards", "1")
    if not text.isdecimal() or not 1 <= int(text) <= MAX_SHARDS:
        raise ConfigurationError(
            f"shards is {text!r:.80}; write a whole number from 1 to {MAX_SHARDS}: shards=8"
        )
    return int(text)


def _with_shards(address: str, shards: int) -> str:
    """Return the shown address with that number of shards; stores keep no other address."""
    parts = urlsplit(address)
    query = urlencode({**dict(parse_qsl(parts.query)), "shards": shards}, safe=":/")
    return parts._replace(query=query).geturl()


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
    if not 0 <= seconds <= MAX_SECONDS:
        raise ConfigurationError(f"{name} is {options[name]!r:.80}; write a number from 0 to 3600")
    return seconds
