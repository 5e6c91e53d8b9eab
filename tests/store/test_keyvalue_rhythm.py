"""Where nothing wakes a worker it looks as often as its store wants, unless its app says more."""

from datetime import timedelta

import pytest

from outlast import Outlast
from outlast.config import Settings

DYNAMODB = "dynamodb://jobs?region=eu-central-1"
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("url", "poll", "tick"),
    [
        ("sqlite:///jobs.db", SECOND / 2, SECOND),
        ("etcd://127.0.0.1:2379", SECOND / 2, SECOND),
        (DYNAMODB, 5 * SECOND, 3 * SECOND),
    ],
)
def test_store_has_its_own_polling_defaults(url: str, poll: timedelta, tick: timedelta) -> None:
    plain, other = Outlast(url).settings, Outlast(url, settings=Settings(lease="30s")).settings

    assert (plain.poll, plain.tick) == (other.poll, other.tick) == (poll, tick)
    assert other.lease == 30 * SECOND


@pytest.mark.parametrize("poll", ["500ms", "2s"])
def test_what_the_app_says_wins_though_it_is_the_usual(poll: str) -> None:
    by_name = Outlast(DYNAMODB, poll=poll).settings
    by_settings = Outlast(DYNAMODB, settings=Settings(poll=poll, tick="1s")).settings

    assert by_name.poll == by_settings.poll == Settings(poll=poll).poll
    assert (by_name.tick, by_settings.tick) == (3 * SECOND, SECOND)


def test_settings_that_a_store_has_chosen_go_to_other_processes_as_they_are() -> None:
    chosen = Outlast(DYNAMODB).settings

    assert Settings.load(chosen.dump()) == chosen
    assert chosen.with_(lease="60s").poll == 5 * SECOND
    assert Settings.load(Settings().dump()) == Settings()
