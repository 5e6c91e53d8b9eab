"""An option that is repeated, or a number in foreign digits, is refused on every store URL."""

import pytest

from outlast.errors import ConfigurationError
from outlast.store.open import open_store

OPTIONS = {
    "sqlite:///jobs.db": ("busy",),
    "postgresql://me@host/db": ("wait",),
    "etcd://me@host:2379/jobs": ("busy", "beat", "max_skew", "shards"),
    "dynamodb://jobs": ("beat", "max_skew", "most_writes", "shards"),
}
CASES = [(url, option) for url, options in OPTIONS.items() for option in options]
THREE = "\u0663"
"""The Arabic digit, which `float` and `int` take as 3."""


@pytest.mark.parametrize(("url", "option"), CASES)
def test_repeated_option_is_refused(url: str, option: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"repeats the options .*{option}.*each .* once"):
        open_store(f"{url}?{option}=2&{option}=3")


@pytest.mark.parametrize("text", [THREE, f"1{THREE}", "1_0", " 3", "+3", "nan", "inf", "1e1", ""])
@pytest.mark.parametrize(("url", "option"), CASES)
def test_number_is_written_in_plain_digits(url: str, option: str, text: str) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"{option} is '.*'; write .* from [0-9]+ to [0-9]+"
    ):
        open_store(f"{url}?{option}={text.replace('+', '%2B')}")


@pytest.mark.parametrize("text", ["0", "9", "12.5", "101", "9" * 5_000])
def test_number_of_writes_is_whole_and_within_the_limit(text: str) -> None:
    with pytest.raises(ConfigurationError, match="whole number from 10 to 100: most_writes=10"):
        open_store(f"dynamodb://jobs?most_writes={text}")


def test_tombstones_in_foreign_digits_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="tombstones is"):
        open_store(f"dynamodb://jobs?tombstones={THREE}d")


def test_repeated_option_of_the_driver_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"repeats the options .*sslmode"):
        open_store("postgresql://host/db?sslmode=require&sslmode=disable")


def test_name_that_may_be_part_of_a_password_is_not_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"repeats the options \[…\]") as refused:
        open_store("postgresql://host/db?password=a&hunter2=1&hunter2=2")

    assert "hunter2" not in str(refused.value)
