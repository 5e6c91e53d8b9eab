"""URLs of stores for the seed tests, each used by one test only."""

import os
import secrets
from pathlib import Path
from typing import Final

import pytest

from outlast.testing.conformance.sizes import DEFAULT, VARIABLE
from outlast.testing.servers import dynamodb as local

SQL: Final = ("sqlite", "postgresql")
ONE_MACHINE: Final = "max_skew=0"
"""All have one clock, so that nobody need wait for another's."""


def keyvalue() -> tuple[str, ...]:
    """DynamoDB at full size only: what is asked of it there, the store's own tests ask, too."""
    is_full = os.environ.get(VARIABLE, DEFAULT) == "full"
    return ("etcd", "dynamodb") if is_full else ("etcd",)


def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """On the session's server of that kind."""
    prefix = f"seeds-{secrets.token_hex(4)}"
    match request.param:
        case "sqlite":
            made = f"sqlite:///{tmp_path / 'jobs.db'}"
        case "postgresql":
            made = request.getfixturevalue("postgres_url")
        case "etcd":
            made = f"{request.getfixturevalue('etcd').url(prefix)}?{ONE_MACHINE}"
        case _:
            endpoint = request.getfixturevalue("dynamodb")
            made = f"{local.url(endpoint, 'tests')}&prefix={prefix}:&{ONE_MACHINE}"
    return made
