"""Refused credentials: the client that made the refused request is discarded, and no other."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from outlast.store.keyvalue.engines.dynamodb import table as module
from outlast.store.keyvalue.engines.dynamodb.table import Table

EXPIRED = {"Error": {"Code": "ExpiredTokenException", "Message": "The token has expired"}}
KEYS = [{"PK": {"S": "a"}, "SK": {"S": "b"}}]


class Client:
    """Made with the credentials that the file has at that moment."""

    def __init__(self, region: str | None, endpoint: str | None, threads: int) -> None:
        self.key = Client.in_file
        self.is_closed = False

    in_file = "old"

    def get_item(self, **_: Any) -> dict[str, Any]:
        if self.key == "old":
            raise ClientError(EXPIRED, "GetItem")
        return {}

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(module, "_client", Client)
    monkeypatch.setattr(module, "_CLIENTS", {})
    monkeypatch.setattr(Client, "in_file", "old")
    return Table("jobs", region="eu-test-1", endpoint=None, threads=1)


def test_request_whose_client_another_thread_has_discarded_is_answered(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other thread was refused first, and its new client has the old credentials too."""
    current = Table._client.fget  # type: ignore[attr-defined]  # a property
    fetched: list[Client] = []

    def fetch(own: Table) -> Client:
        if len(fetched) == 1:  # another thread was refused meanwhile
            own._renew(fetched[-1])
        fetched.append(current(own))
        return fetched[-1]

    monkeypatch.setattr(Table, "_client", property(fetch))

    def request() -> object:
        try:
            return table.read(KEYS)
        finally:
            Client.in_file = "new"  # a credential helper replaces it after the first refusal

    assert table.ask(request) == ([], [])
    assert fetched[0].is_closed
    assert not fetched[-1].is_closed
