"""The page about transactions is true, on a PostgreSQL of our own."""

from pathlib import Path

import pytest
from pages import play

from outlast.testing.servers.postgres import PostgresServer

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "in-your-own-transaction.md"
NAMED = "postgresql://localhost/shop"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_block_of_the_page_is_true(tmp_path: Path, postgres: PostgresServer) -> None:
    page = PAGE.read_text()
    url = postgres.new_database()

    assert page.count(NAMED) == 1
    play(page.replace(NAMED, url), tmp_path)

    postgres.drop_database(url.rpartition("/")[2])
