"""DynamoDB item codec."""

from collections.abc import Mapping
from typing import Any, Final

from outlast.store.keyvalue.engine import Key, StoredItem, Value

VERSION: Final = "record_version"
"""Attribute that tells one write of an item from another."""

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
    return StoredItem(key, own, item[VERSION]["S"] if VERSION in item else "")


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
            return int(held)
        case "M":
            return {name: _value(each) for name, each in held.items()} if held else ""
        case "L":
            return [_value(each) for each in held]
        case _:
            return held
