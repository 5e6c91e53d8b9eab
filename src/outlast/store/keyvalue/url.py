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
from outlast.store.url_options import read_count, read_options, read_seconds, refuse_unknown

ETCD: Final = "etcd://host:2379,host2:2379/prefix"
DYNAMODB: Final = "dynamodb://table?region=eu-central-1"
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
    from outlast.store.keyvalue.engines.etcd.password import find_password, find_password_file  # noqa: PLC0415 - same
    from outlast.store.keyvalue.engines.etcd.tls import tls_context  # noqa: PLC0415 - same

    known = {"tls", "ca", "cert", "key", "max_skew", "beat", "busy", "shards"}
    shown = shown_address(url)
    parts, options = _split(url, known)
    where = parts.netloc.rpartition("@")[2]
    found = tuple(hosts(where))
    if not found:
        raise ConfigurationError(f"{shown} names no host; write for example {ETCD}")
    cluster = Cluster(
        hosts=found,
        user=None if parts.username is None else unquote(parts.username),
        password=find_password(parts),
        password_file=find_password_file(parts),
        tls=tls_context(options),
    )
    engine = EtcdEngine(
        cluster,
        prefix=_name(parts.path.strip("/") or "outlast"),
        beat=read_seconds(options, "beat", where=shown, default=BEAT),
        timeout=read_seconds(options, "busy", where=shown, default=TOTAL_TIMEOUT_S),
    )
    return KeyValueStore(
        engine,
        clock=clock,
        ids=ids,
        max_skew=_skew(options, shown),
        shards=_shards(options, shown),
        address=partial(_with_shards, shown),
    )


def dynamodb_store(url: str, *, clock: Clock | None, ids: Ids | None) -> KeyValueStore:
    """Return the store of a DynamoDB URL.

    For example `dynamodb://table?region=eu-central-1`; `endpoint=http://127.0.0.1:8000` for tests.
    Raises ConfigurationError if the URL is malformed.
    """
    from outlast.store.keyvalue.engines.dynamodb.engine import (  # noqa: PLC0415 - only when chosen
        BEAT,
        LEAST_WRITES,
        MOST_WRITES,
        DynamoDBEngine,
    )

    known = {"region", "endpoint", "prefix", "max_skew", "beat", "most_writes", "tombstones"}
    shown = shown_address(url)
    parts, options = _split(url, {*known, "shards"})
    engine = DynamoDBEngine(
        _table(parts, url),
        region=options.get("region"),
        endpoint=_endpoint(options.get("endpoint")),
        prefix=_prefix(options.get("prefix", "")),
        beat=read_seconds(options, "beat", where=shown, default=BEAT),
        most_writes=read_count(
            options,
            "most_writes",
            where=shown,
            default=MOST_WRITES,
            least=LEAST_WRITES,
            most=MOST_WRITES,
        ),
    )
    return KeyValueStore(
        engine,
        clock=clock,
        ids=ids,
        max_skew=_skew(options, shown),
        tombstones=_tombstones(options),
        shards=_shards(options, shown),
        address=partial(_with_shards, shown),
    )


def _split(url: str, known: set[str]) -> tuple[SplitResult, dict[str, str]]:
    parts = urlsplit(url)
    options = read_options(parts.query, where=shown_address(url))
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


def _skew(options: Mapping[str, str], where: str) -> timedelta:
    default = MAX_SKEW.total_seconds()
    return timedelta(seconds=read_seconds(options, "max_skew", where=where, default=default))


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


def _shards(options: Mapping[str, str], where: str) -> int:
    return read_count(options, "shards", where=where, default=1, most=MAX_SHARDS)


def _with_shards(address: str, shards: int) -> str:
    """Return the shown address with that number of shards; stores keep no other address."""
    parts = urlsplit(address)
    query = urlencode({**dict(parse_qsl(parts.query)), "shards": shards}, safe=":/")
    return parts._replace(query=query).geturl()
