"""DynamoDB table: blocking requests, and translation of their errors."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from outlast.errors import (
    ForeignStore,
    OperatorError,
    PayloadTooLarge,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    StoreUnavailable,
)
from outlast.store.keyvalue.engine import LAST, KeyRange
from outlast.store.keyvalue.engines.dynamodb.items import VERSION

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
_RIGHTS: Final = "grant the permissions that the page on DynamoDB lists"
_RENEW: Final = "renew the credentials, and check the region and this machine's clock"
_REFUSED: Final = {
    "AccessDeniedException": _RIGHTS,
    "ExpiredTokenException": _RENEW,
    "ExpiredToken": _RENEW,
    "InvalidSignatureException": _RENEW,
    "MissingAuthenticationTokenException": _RENEW,
    "UnrecognizedClientException": _RENEW,
}
"""Error codes of refused access, with the remedy."""

_NO_CREDENTIALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError"})


_MAKING: Final = Lock()
"""Guards the creation of clients, which is not thread-safe."""


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
        retries={"mode": "standard", "total_max_attempts": 6},
    )
    session = boto3.session.Session()
    return session.client("dynamodb", region_name=region, endpoint_url=endpoint, config=config)


class Table:
    """Requests to one table; the client is created at the first request."""

    def __init__(
        self, name: str, *, region: str | None, endpoint: str | None, threads: int
    ) -> None:
        self.name = name
        self.date: datetime | None = None
        self._where = region, endpoint, threads

    @property
    def _client(self) -> Any:
        key = (os.getpid(), *self._where)
        with _MAKING:
            if key not in _CLIENTS:
                _CLIENTS[key] = _client(*self._where)
            return _CLIENTS[key]

    def _renew(self, refused: Any) -> None:
        """Discard a client whose credentials were refused, so that the next one reads them anew."""
        key = (os.getpid(), *self._where)
        with _MAKING:
            if _CLIENTS.get(key) is refused:
                _CLIENTS.pop(key).close()

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
        """Return the table description, and remember the server's time."""
        with self._translated():
            answer = self._client.describe_table(TableName=self.name)
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        self.date = None if date is None else parsedate_to_datetime(date)
        return answer["Table"]

    def _create(self) -> Any:
        with self._translated():
            # In use: another process creates it.
            with suppress(self._client.exceptions.ResourceInUseException):
                self._client.create_table(
                    TableName=self.name,
                    KeySchema=KEYS,
                    AttributeDefinitions=_TYPES,
                    BillingMode="PAY_PER_REQUEST",
                )
            self._client.get_waiter("table_exists").wait(TableName=self.name)
        with suppress(StoreReadOnly):  # works without; `db status` shows it
            self.expire()
        return self.describe()

    def expires_by(self) -> str:
        """Return the attribute by which items expire; empty if expiry is off."""
        with self._translated():
            answer = self._client.describe_time_to_live(TableName=self.name)
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
            with self._translated():
                self._client.update_time_to_live(
                    TableName=self.name, TimeToLiveSpecification=wanted
                )
        except StoreCorrupt:
            if not self.expires_by():  # another process turned it on
                raise

    def read(self, keys: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
        """Return the items found, and the keys left unprocessed."""
        with self._translated():
            if len(keys) == 1:
                answer = self._client.get_item(
                    TableName=self.name, Key=keys[0], ConsistentRead=True
                )
                return [answer["Item"]] if "Item" in answer else [], []
            wanted = {self.name: {"Keys": list(keys), "ConsistentRead": True}}
            answer = self._client.batch_get_item(RequestItems=wanted)
        left = answer["UnprocessedKeys"].get(self.name, {}).get("Keys", [])
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
        with self._translated():
            answer = self._client.query(**asked)
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
        with self._translated():
            answer = self._client.scan(**asked)
        return answer["Items"], answer.get("LastEvaluatedKey")

    def write(self, items: Sequence[Mapping[str, Any]], token: str) -> frozenset[str]:
        """Write all items in one transaction; return why not, or an empty set on success."""
        with self._translated():
            try:
                self._write(items, token)
            except ClientError as error:
                reasons = _reasons(error)
                if not reasons:
                    raise
                return reasons
        return frozenset()

    def _write(self, items: Sequence[Mapping[str, Any]], token: str) -> None:
        if len(items) == 1 and next(iter(items[0])) in _SINGLE:
            [(kind, own)] = items[0].items()
            getattr(self._client, _SINGLE[kind])(**own)
        else:
            asked = {"TransactItems": list(items), "ClientRequestToken": token}
            self._client.transact_write_items(**asked)

    def advance(self, where: Mapping[str, Any], by: int, mark: str) -> int:
        """Add to a counter; a request sent twice adds twice."""
        with self._translated():
            answer = self._client.update_item(
                TableName=self.name,
                Key=where,
                UpdateExpression=f"ADD #last :by SET {VERSION} = :mark",
                ExpressionAttributeNames={"#last": LAST},
                ExpressionAttributeValues={":by": {"N": str(by)}, ":mark": {"S": mark}},
                ReturnValues="UPDATED_NEW",
            )
        return int(answer["Attributes"][LAST]["N"])

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            client = self._client
            yield
        except ClientError as error:
            if _REFUSED.get(error.response["Error"]["Code"]) is _RENEW:
                self._renew(client)
            raise self._error(error) from error
        except BotoCoreError as error:
            if type(error).__name__ in _NO_CREDENTIALS:
                self._renew(client)  # the next attempt may find some
            raise self._error(error) from error

    def _error(self, error: ClientError | BotoCoreError) -> Exception:
        if isinstance(error, ClientError):
            return self._refusal(*_told(error))
        if type(error).__name__ in _NO_CREDENTIALS:
            return StoreReadOnly(f"no credentials for table {self.name}; provide them as for boto3")
        if type(error).__name__ == "NoRegionError":
            return StoreMissing(f"no region for table {self.name}; add ?region=… to the URL")
        return StoreUnavailable(f"table {self.name} cannot be reached: {error}; try again later")

    def _refusal(self, code: str, told: str) -> Exception:
        if code == "ResourceNotFoundException":
            return StoreMissing(
                f"there is no table {self.name} in this region; check name and region, or run "
                "`outlast db migrate`, which creates it"
            )
        if code in _REFUSED:
            what_now = _REFUSED[code]
            return StoreReadOnly(
                f"DynamoDB refuses access to table {self.name}: {told} ({code}); {what_now}"
            )
        if code in {"ThrottlingException", "ProvisionedThroughputExceededException"}:
            return StoreBusy(
                f"DynamoDB throttles table {self.name}: {told}; the request is retried"
            )
        if code == "LimitExceededException":
            return StoreFull(f"the account has no room for table {self.name}: {told}")
        if code == "ValidationException" and "size" in told:
            return PayloadTooLarge(f"an item would be over 400 KB: {told}")
        error: type[OperatorError] = StoreUnavailable if code == "500" else StoreCorrupt
        return error(f"DynamoDB refused a request at table {self.name}: {told} ({code})")


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


def _told(error: ClientError) -> tuple[str, str]:
    """Return code and message; of a cancelled transaction, those of the item that caused it."""
    code, told = error.response["Error"]["Code"], error.response["Error"]["Message"]
    spoiled = [r for r in error.response.get("CancellationReasons", []) if r.get("Message")]
    if code != "TransactionCanceledException" or not spoiled:
        return code, told
    return "ValidationException", spoiled[0]["Message"]


def _reasons(error: ClientError) -> frozenset[str]:
    """Return the codes of a conflict; empty if the error is a fault."""
    code = error.response["Error"]["Code"]
    if code == "ConditionalCheckFailedException":
        return frozenset({"ConditionalCheckFailed"})
    if code in {"TransactionInProgressException", "TransactionConflictException"}:
        return frozenset({code})
    if code != "TransactionCanceledException":
        return frozenset()
    told = {each.get("Code", "None") for each in error.response.get("CancellationReasons", [])}
    found = told - {"None"}
    faults = found & {"ValidationError", "ItemCollectionSizeLimitExceeded"}
    return frozenset() if faults else frozenset(found or {"ConditionalCheckFailed"})
