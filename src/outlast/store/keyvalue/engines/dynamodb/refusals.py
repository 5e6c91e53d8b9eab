"""Errors of DynamoDB and of its client, as errors of Outlast."""

from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from outlast.errors import (
    OperatorError,
    PayloadTooLarge,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    StoreUnavailable,
)
from outlast.store.keyvalue.pacing import MAX_TRIES

THROTTLED: Final = frozenset(
    {
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionInProgressException",
    }
)
"""Codes of too many requests, and of a try whose predecessor is still under way."""

UNANSWERED: Final = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
    }
)
"""Codes of a server that fails; so does any status from 500 on."""

CONFLICTS: Final = frozenset({"TransactionConflict", "TransactionConflictException"})
"""Codes of another transaction under way with the same items."""

_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500
_CANCELLED: Final = "TransactionCanceledException"
_CONDITION: Final = "ConditionalCheckFailed"
_FAULTS: Final = frozenset({"ValidationError", "ItemCollectionSizeLimitExceeded"})

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


def is_about_credentials(error: BaseException | None) -> bool:
    """Return True if other credentials may help."""
    if isinstance(error, ClientError):
        return _REFUSED.get(error.response["Error"]["Code"]) is _RENEW
    return type(error).__name__ in _NO_CREDENTIALS


def conflict(error: ClientError) -> frozenset[str]:
    """Return the codes of a write that was refused by other writes; empty for any other error."""
    code = error.response["Error"]["Code"]
    if code == "ConditionalCheckFailedException":
        return frozenset({_CONDITION})
    if code in CONFLICTS:
        return frozenset({code})
    if code != _CANCELLED:
        return frozenset()
    reasons = _reasons(error)
    return frozenset() if reasons & (_FAULTS | THROTTLED) else reasons or frozenset({_CONDITION})


def translated(error: ClientError | BotoCoreError, table: str) -> Exception:
    """Return the error to raise for a request to a table."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code, told = _told(error)
        return _passing(code, told, status, table) or _refusal(code, told, table)
    if type(error).__name__ in _NO_CREDENTIALS:
        return StoreReadOnly(f"no credentials for table {table}; provide them as for boto3")
    if type(error).__name__ == "NoRegionError":
        return StoreMissing(f"no region for table {table}; add ?region=… to the URL")
    return StoreUnavailable(f"table {table} cannot be reached: {error}; try again later")


def throttled(told: str, table: str) -> StoreBusy:
    """Return the error of a request that the server does not take now."""
    return StoreBusy(
        f"DynamoDB throttles table {table}: {told}; the request was sent {MAX_TRIES} times, so "
        "try again later or raise the table's capacity"
    )


def _passing(code: str, told: str, status: int, table: str) -> OperatorError | None:
    """Return the error if the same request may succeed later, else None."""
    if code in THROTTLED or status == _TOO_MANY_REQUESTS:
        return throttled(told or code, table)
    if code in UNANSWERED or status >= _SERVER_ERROR:
        return StoreUnavailable(
            f"DynamoDB fails at table {table}: {told or status} ({code}); try again later"
        )
    return None


def _refusal(code: str, told: str, table: str) -> Exception:
    if code == "ResourceNotFoundException":
        return StoreMissing(
            f"there is no table {table} in this region; check name and region, or run "
            "`outlast db migrate`, which creates it"
        )
    if code in _REFUSED:
        return StoreReadOnly(
            f"DynamoDB refuses access to table {table}: {told} ({code}); {_REFUSED[code]}"
        )
    if code == "LimitExceededException":
        return StoreFull(f"the account has no room for table {table}: {told}")
    if code == "ValidationException" and "size" in told:
        return PayloadTooLarge(f"an item would be over 400 KB: {told}")
    return StoreCorrupt(f"DynamoDB refused a request at table {table}: {told} ({code})")


def _told(error: ClientError) -> tuple[str, str]:
    """Return code and message; of a cancelled transaction, those of the item that caused it."""
    code, told = error.response["Error"]["Code"], error.response["Error"]["Message"]
    if code != _CANCELLED:
        return code, told
    reasons = error.response.get("CancellationReasons", [])
    for each in reasons:
        if each.get("Code") in THROTTLED:
            return each["Code"], each.get("Message") or ""
    spoiled = [each["Message"] for each in reasons if each.get("Message")]
    return ("ValidationException", spoiled[0]) if spoiled else (code, told)


def _reasons(error: ClientError) -> frozenset[str]:
    told = {each.get("Code", "None") for each in error.response.get("CancellationReasons", [])}
    return frozenset(told - {"None"})
