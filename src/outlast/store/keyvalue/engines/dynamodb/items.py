"""DynamoDB item codec, and the comparison of an item with what was read of it."""

import json
from collections.abc import Mapping
from typing import Any, Final

from outlast.store.keyvalue.engine import Key, StoredItem, Value

VERSION: Final = "record_version"
"""Attribute that tells one write of an item from another. An edit by hand does not change it."""

COMPARED: Final = (
    "status",
    "state",
    "scheduled_for",
    "priority",
    "attempts",
    "locked_by",
    "lock_expires_at",
)
"""Attributes of a job that every write compares too, because people edit them."""

JOB: Final = "job_id"
"""Attribute of the items whose `COMPARED` attributes count."""

Item = Mapping[str, Mapping[str, Any]]


def key_item(key: Key, prefix: str = "") -> dict[str, Any]:
    """Return the key attributes of an item."""
    return {"PK": {"S": prefix + key.part}, "SK": {"S": key.sort}}


def put_item(where: Mapping[str, Any], value: Value, version: str) -> dict[str, Any]:
    """Return the item of a record."""
    attributes = {name: _attribute(each) for name, each in value.items()}
    return {**attributes, **where, VERSION: {"S": version}}


def entry(item: Item, prefix: str = "") -> StoredItem:
    """Return the record of an item."""
    key = Key(item["PK"]["S"].removeprefix(prefix), item["SK"]["S"])
    own = {name: _value(each) for name, each in item.items() if name not in {"PK", "SK", VERSION}}
    return StoredItem(key, own, _version(item))


def mark_of(version: str) -> str:
    """Return the mark of the transaction that wrote the item."""
    return version.partition("\0")[0]


def condition(version: str | None) -> dict[str, Any]:
    """Return the condition that an item is as it was read; that it does not exist for None."""
    if version is None:
        return {"ConditionExpression": "attribute_not_exists(PK)"}
    mark, _, compared = version.partition("\0")
    held = {VERSION: {"S": mark} if mark else None, **(json.loads(compared) if compared else {})}
    terms = ["attribute_exists(PK)"]
    terms += [f"#{n} = :{n}" if at else f"attribute_not_exists(#{n})" for n, at in held.items()]
    values = {f":{name}": attribute for name, attribute in held.items() if attribute}
    return {
        "ConditionExpression": " AND ".join(terms),
        "ExpressionAttributeNames": {f"#{name}": name for name in held},
        **({"ExpressionAttributeValues": values} if values else {}),
    }


def _version(item: Item) -> str:
    """Return the mark of the item's last write; of a job also what else is compared."""
    mark = str(item.get(VERSION, {}).get("S", ""))
    if JOB not in item or "seq" not in item:
        return mark
    compared = {name: item.get(name) for name in COMPARED}
    return f"{mark}\0{json.dumps(compared, sort_keys=True, default=repr)}"


def _attribute(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"BOOL": value}
        case int():
            return {"N": str(value)}
        case str() if value:
            return {"S": str(value)}
        case list() | tuple():
            return {"L": [_attribute(each) for each in value]}
        case dict():
            return {"M": {name: _attribute(each) for name, each in value.items()}}
        case _:
            return _nothing(value)


def _nothing(value: Any) -> dict[str, Any]:
    """Return the attribute of None or empty text.

    Old servers refuse empty text. An empty map stands for it, for no record holds one.
    """
    assert value is None or value == "", f"a record cannot hold {type(value).__name__}"
    return {"NULL": True} if value is None else {"M": {}}


def _value(attribute: Mapping[str, Any]) -> Any:
    [(kind, held)] = attribute.items()
    match kind:
        case "NULL":
            return None
        case "N":
            return int(held) if held.lstrip("-").isdecimal() else float(held)
        case "M":
            return {name: _value(each) for name, each in held.items()} if held else ""
        case "L":
            return [_value(each) for each in held]
        case _:
            return held
