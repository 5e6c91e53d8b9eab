"""The table itself: its requests, one at a time and blocking, and what its refusals mean."""

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
"""The attribute by which DynamoDB takes items away: seconds since 1970."""

_SINGLE: Final = {"Put": "put_item", "Delete": "delete_item"}
_RIGHTS: Final = "grant it what the page on DynamoDB lists"
_RENEW: Final = "renew the credentials, and see to the region and this machine's clock"
_REFUSED: Final = {
    "AccessDeniedException": _RIGHTS,
    "ExpiredTokenException": _RENEW,
    "ExpiredToken": _RENEW,
    "InvalidSignatureException": _RENEW,
    "MissingAuthenticationTokenException": _RENEW,
    "UnrecognizedClientException": _RENEW,
}
"""Who may not, and what to do about it."""

_NO_CREDENTIALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError"})


_MAKING: Final = Lock()
"""Making a client is no business of two threads."""


_CLIENTS: Final[dict[object, Any]] = {}
"""One for all stores of a process, and none that a fork has brought along."""


def _client(region: str | None, endpoint: str | None, threads: int) -> Any:
    """Of a session of its own: boto3's default one is everybody's. Making one reads many files."""
    config = Config(
        max_pool_connections=threads,
        connect_timeout=3,
        read_timeout=10,
        parameter_validation=False,  # a sixth of the time of each request, for what we made
        user_agent="outlast",  # the usual one is put together anew for each request
        retries={"mode": "standard", "total_max_attempts": 6},
    )
    session = boto3.session.Session()
    return session.client("dynamodb", region_name=region, endpoint_url=endpoint, config=config)


class Table:
    """Made before it is needed: nothing is asked until then."""

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
        """Look for credentials anew: a client keeps those it was made with, and whoever renews
        them in a file would wait for our next start."""
        key = (os.getpid(), *self._where)
        with _MAKING:
            if _CLIENTS.get(key) is refused:
                _CLIENTS.pop(key).close()

    def exists(self) -> bool:
        try:
            self.describe()
        except StoreMissing:
            return False
        return True

    def prepare(self) -> None:
        """Make the table if it is not there; refuse one with other keys."""
        try:
            described = self.describe()
        except StoreMissing:
            described = self._create()
        keys = [{name: key[name] for name in KEYS[0]} for key in described["KeySchema"]]
        types = sorted(described["AttributeDefinitions"], key=lambda each: each["AttributeName"])
        if keys != KEYS or [each for each in types if each in _TYPES] != _TYPES:
            raise ForeignStore(
                f"table {self.name} has other keys than PK and SK, both text; name another table, "
                "or let Outlast make it"
            )

    def describe(self) -> Any:
        with self._translated():
            answer = self._client.describe_table(TableName=self.name)
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        self.date = None if date is None else parsedate_to_datetime(date)
        return answer["Table"]

    def _create(self) -> Any:
        with self._translated():
            # In use: somebody else is making it.
            with suppress(self._client.exceptions.ResourceInUseException):
                self._client.create_table(
                    TableName=self.name,
                    KeySchema=KEYS,
                    AttributeDefinitions=_TYPES,
                    BillingMode="PAY_PER_REQUEST",
                )
            self._client.get_waiter("table_exists").wait(TableName=self.name)
        with suppress(StoreReadOnly):  # it works without, and `db status` tells
            self.expire()
        return self.describe()

    def expires_by(self) -> str:
        """The attribute by which DynamoDB takes items away; empty if it takes none."""
        with self._translated():
            answer = self._client.describe_time_to_live(TableName=self.name)
        told = answer["TimeToLiveDescription"]
        is_on = told["TimeToLiveStatus"] in {"ENABLED", "ENABLING"}
        return told.get("AttributeName", "") if is_on else ""

    def expire(self) -> None:
        """Let DynamoDB take away what is past its time; a table knows one attribute for that,
        and if it has another one, that stays."""
        if self.expires_by():
            return
        wanted = {"Enabled": True, "AttributeName": EXPIRES_AT}
        try:
            with self._translated():
                self._client.update_time_to_live(
                    TableName=self.name, TimeToLiveSpecification=wanted
                )
        except StoreCorrupt:
            if not self.expires_by():  # somebody else was quicker
                raise

    def read(self, keys: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
        """The items that are there, and the keys that were left out."""
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
        """One page of a span, its end included, and where the next one begins."""
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
        """One page of all items whose `PK` begins so, and where the next one begins."""
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
        """Write all; or nothing, and why not."""
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
        """Raise a counter; one that was sent twice is raised twice."""
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
                self._renew(client)  # there may be some at the next try
            raise self._error(error) from error

    def _error(self, error: ClientError | BotoCoreError) -> Exception:
        if isinstance(error, ClientError):
            return self._refusal(*_told(error))
        if type(error).__name__ in _NO_CREDENTIALS:
            return StoreReadOnly(f"no credentials for table {self.name}; give some as boto3 wants")
        if type(error).__name__ == "NoRegionError":
            return StoreMissing(f"no region for table {self.name}; add ?region=… to the address")
        return StoreUnavailable(f"table {self.name} cannot be reached: {error}; try again later")

    def _refusal(self, code: str, told: str) -> Exception:
        if code == "ResourceNotFoundException":
            return StoreMissing(
                f"there is no table {self.name} in this region; check name and region, or run "
                "`outlast db migrate`, which makes it"
            )
        if code in _REFUSED:
            what_now = _REFUSED[code]
            return StoreReadOnly(
                f"DynamoDB refuses us at table {self.name}: {told} ({code}); {what_now}"
            )
        if code in {"ThrottlingException", "ProvisionedThroughputExceededException"}:
            return StoreBusy(
                f"table {self.name} is asked too much: {told}; it waits and asks again"
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
    """Its code and its words; of a transaction, those of the item that spoiled it."""
    code, told = error.response["Error"]["Code"], error.response["Error"]["Message"]
    spoiled = [r for r in error.response.get("CancellationReasons", []) if r.get("Message")]
    if code != "TransactionCanceledException" or not spoiled:
        return code, told
    return "ValidationException", spoiled[0]["Message"]


def _reasons(error: ClientError) -> frozenset[str]:
    """Why it was not written, where that is an answer and no fault."""
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
