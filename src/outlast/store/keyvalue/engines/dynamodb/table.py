"""DynamoDB table: blocking requests, and translation of their errors."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from threading import Lock, local
from typing import Any, Final, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from outlast.clock import SystemClock
from outlast.errors import (
    ForeignStore,
    StoreCorrupt,
    StoreMissing,
    StoreReadOnly,
)
from outlast.store.keyvalue.engine import LAST, KeyRange, ServerTime
from outlast.store.keyvalue.engines.dynamodb.items import VERSION
from outlast.store.keyvalue.engines.dynamodb.refusals import (
    conflict,
    is_about_credentials,
    throttled,
    translated,
)

Answer = TypeVar("Answer")

KEYS: Final = [
    {"AttributeName": "PK", "KeyType": "HASH"},
    {"AttributeName": "SK", "KeyType": "RANGE"},
]
_TYPES: Final = [
    {"AttributeName": "PK", "AttributeType": "S"},
    {"AttributeName": "SK", "AttributeType": "S"},
]
EXPIRES_AT: Final = "expires_at"
"""Attribute of item expiry: seconds since 1970."""

_SINGLE: Final = {"Put": "put_item", "Delete": "delete_item"}
_MAKING: Final = Lock()
"""Guards the creation of clients, which is not thread-safe."""


_ANSWERED: Final = local()
"""`date`: the server's time in the latest answer to a request of this thread."""

_CLIENTS: Final[dict[object, Any]] = {}
"""Clients by process and region: one for all stores, and none inherited by a fork."""


def _client(region: str | None, endpoint: str | None, threads: int) -> Any:
    """Return a client of its own session: the default session is shared. Creation reads files."""
    config = Config(
        max_pool_connections=threads,
        connect_timeout=3,
        read_timeout=10,
        parameter_validation=False,  # saves a sixth of each request
        user_agent="outlast",  # the default is built for each request
        retries={"mode": "standard", "total_max_attempts": 1},  # the engine repeats
    )
    session = boto3.session.Session()
    client = session.client("dynamodb", region_name=region, endpoint_url=endpoint, config=config)
    client.meta.events.register("after-call.dynamodb", _note_date)
    return client


def _note_date(parsed: Mapping[str, Any], **_: object) -> None:
    """Remember the server's time of an answer, for the request of this thread."""
    _ANSWERED.date = parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")


class Table:
    """Requests to one table; the client is created at the first request."""

    def __init__(
        self, name: str, *, region: str | None, endpoint: str | None, threads: int
    ) -> None:
        self.name = name
        self.latest_time: ServerTime | None = None
        self._where = region, endpoint, threads

    @property
    def _client(self) -> Any:
        key = (os.getpid(), *self._where)
        with _MAKING:
            if key not in _CLIENTS:
                _CLIENTS[key] = _client(*self._where)
            return _CLIENTS[key]

    @property
    def endpoint(self) -> str:
        """URL that the requests go to: of the store's URL, the environment, or AWS's own."""
        return str(self._client.meta.endpoint_url)

    def _renew(self, refused: Any) -> None:
        """Discard a client whose credentials were refused, so that the next one reads them anew."""
        key = (os.getpid(), *self._where)
        with _MAKING:
            if _CLIENTS.get(key) is refused:
                _CLIENTS.pop(key).close()

    def ask(self, request: Callable[[], Answer]) -> Answer:
        """Make a request, and once more with credentials read anew if those at hand are refused.

        A refused request has no effect. Credentials that a file or a service has replaced since the
        client was created cost no caller an error.
        """
        try:
            return request()
        except StoreReadOnly as refusal:
            if not is_about_credentials(refusal.__cause__):
                raise
            return request()

    def exists(self) -> bool:
        """Return True if the table exists."""
        try:
            self.describe()
        except StoreMissing:
            return False
        return True

    def prepare(self) -> None:
        """Create the table if it does not exist; raise ForeignStore if it has other keys."""
        try:
            described = self.describe()
        except StoreMissing:
            described = self._create()
        keys = [{name: key[name] for name in KEYS[0]} for key in described["KeySchema"]]
        types = sorted(described["AttributeDefinitions"], key=lambda each: each["AttributeName"])
        if keys != KEYS or [each for each in types if each in _TYPES] != _TYPES:
            raise ForeignStore(
                f"table {self.name} has other keys than PK and SK, both text; name another table, "
                "or let Outlast create one"
            )

    def describe(self) -> Any:
        """Return the table description."""
        with self._translated() as client:
            return client.describe_table(TableName=self.name)["Table"]

    def _create(self) -> Any:
        with self._translated() as client:
            # In use: another process creates it.
            with suppress(client.exceptions.ResourceInUseException):
                client.create_table(
                    TableName=self.name,
                    KeySchema=KEYS,
                    AttributeDefinitions=_TYPES,
                    BillingMode="PAY_PER_REQUEST",
                )
            client.get_waiter("table_exists").wait(TableName=self.name)
        with suppress(StoreReadOnly):  # works without; `db status` shows it
            self.expire()
        return self.describe()

    def expires_by(self) -> str:
        """Return the attribute by which items expire; empty if expiry is off."""
        with self._translated() as client:
            answer = client.describe_time_to_live(TableName=self.name)
        told = answer["TimeToLiveDescription"]
        is_on = told["TimeToLiveStatus"] in {"ENABLED", "ENABLING"}
        return told.get("AttributeName", "") if is_on else ""

    def expire(self) -> None:
        """Turn on item expiry.

        A table has one attribute for that. If it has another one, that stays.
        """
        if self.expires_by():
            return
        wanted = {"Enabled": True, "AttributeName": EXPIRES_AT}
        try:
            with self._translated() as client:
                client.update_time_to_live(TableName=self.name, TimeToLiveSpecification=wanted)
        except StoreCorrupt:
            if not self.expires_by():  # another process turned it on
                raise

    def read(self, keys: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
        """Return the items found, and the keys left unprocessed; StoreBusy if those are all."""
        with self._translated() as client:
            if len(keys) == 1:
                answer = client.get_item(TableName=self.name, Key=keys[0], ConsistentRead=True)
                return [answer["Item"]] if "Item" in answer else [], []
            wanted = {self.name: {"Keys": list(keys), "ConsistentRead": True}}
            answer = client.batch_get_item(RequestItems=wanted)
        left = answer["UnprocessedKeys"].get(self.name, {}).get("Keys", [])
        if len(left) == len(keys):
            raise throttled("every key was left unprocessed", self.name)
        return answer["Responses"].get(self.name, []), left

    def query(
        self, span: KeyRange, limit: int, after: Any, *, reverse: bool
    ) -> tuple[list[Any], Any]:
        """Return one page of a key range, its end included, and where the next one begins."""
        asked = {
            "TableName": self.name,
            "ConsistentRead": True,
            "ScanIndexForward": not reverse,
            "Limit": min(limit + 1, 1_000),
            **_between(span),
            **({} if after is None else {"ExclusiveStartKey": after}),
        }
        with self._translated() as client:
            answer = client.query(**asked)
        return answer["Items"], answer.get("LastEvaluatedKey")

    def scan(self, start: str, after: Any) -> tuple[list[Any], Any]:
        """Return one page of items whose `PK` begins with `start`, and where the next begins."""
        asked = {
            "TableName": self.name,
            "ConsistentRead": True,
            "FilterExpression": "begins_with(PK, :start)",
            "ExpressionAttributeValues": {":start": {"S": start}},
            **({} if after is None else {"ExclusiveStartKey": after}),
        }
        with self._translated() as client:
            answer = client.scan(**asked)
        return answer["Items"], answer.get("LastEvaluatedKey")

    def write(self, items: Sequence[Mapping[str, Any]], token: str) -> frozenset[str]:
        """Write all items in one transaction; return why not, or an empty set on success."""
        with self._translated() as client:
            try:
                _write(client, items, token)
            except ClientError as error:
                reasons = conflict(error)
                if not reasons:
                    raise
                return reasons
        return frozenset()

    def advance(self, where: Mapping[str, Any], by: int, mark: str) -> int:
        """Add to a counter; a request sent twice adds twice."""
        with self._translated() as client:
            answer = client.update_item(
                TableName=self.name,
                Key=where,
                UpdateExpression=f"ADD #last :by SET {VERSION} = :mark",
                ExpressionAttributeNames={"#last": LAST},
                ExpressionAttributeValues={":by": {"N": str(by)}, ":mark": {"S": mark}},
                ReturnValues="UPDATED_NEW",
            )
        return int(answer["Attributes"][LAST]["N"])

    @contextmanager
    def _translated(self) -> Iterator[Any]:
        """Yield the client for a request, so that the one that is refused is the one discarded."""
        sent = SystemClock().monotonic()
        _ANSWERED.date = None
        try:
            client = self._client
            yield client
        except (ClientError, BotoCoreError) as error:
            if is_about_credentials(error):
                self._renew(client)  # the next attempt reads them anew
            raise translated(error, self.name) from error
        finally:
            if _ANSWERED.date is not None:
                at = parsedate_to_datetime(_ANSWERED.date)
                self.latest_time = ServerTime(at, sent, SystemClock().monotonic())


def _write(client: Any, items: Sequence[Mapping[str, Any]], token: str) -> None:
    if len(items) == 1 and next(iter(items[0])) in _SINGLE:
        [(kind, own)] = items[0].items()
        getattr(client, _SINGLE[kind])(**own)
    else:
        asked = {"TransactItems": list(items), "ClientRequestToken": token}
        client.transact_write_items(**asked)


def _between(span: KeyRange) -> dict[str, Any]:
    values = {":part": {"S": span.part}}
    condition = "PK = :part"
    if span.start and span.end is not None:
        condition += " AND SK BETWEEN :start AND :end"
        values |= {":start": {"S": span.start}, ":end": {"S": span.end}}
    elif span.start:
        condition += " AND SK >= :start"
        values[":start"] = {"S": span.start}
    elif span.end is not None:
        condition += " AND SK < :end"
        values[":end"] = {"S": span.end}
    return {"KeyConditionExpression": condition, "ExpressionAttributeValues": values}
