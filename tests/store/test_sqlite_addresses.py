"""From an address to a file: exactly the one that is spelled, or a refusal that helps."""

from pathlib import Path
from typing import Any

import pytest

from outlast.core.address import shown_address
from outlast.errors import ConfigurationError
from outlast.store.open import open_store
from outlast.store.sqlite.store import BUSY_TIMEOUT_S, SqliteStore
from outlast.testing.conformance.factories import put


def _opened(url: str) -> SqliteStore:
    store = open_store(url)
    assert isinstance(store, SqliteStore)
    return store


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///jobs.db", "jobs.db"),
        ("sqlite:///data/jobs.db", "data/jobs.db"),
        ("sqlite:////var/lib/jobs.db", "/var/lib/jobs.db"),
        ("sqlite:///jobs with spaces.db", "jobs with spaces.db"),
        ("sqlite:///größe-東京.db", "größe-東京.db"),
        ("sqlite:///jobs.db?adopt=true&busy=5", "jobs.db"),
    ],
)
def test_address_names_its_file(url: str, path: str) -> None:
    assert _opened(url).path.resolve() == Path(path).resolve()


@pytest.mark.parametrize(
    "url",
    ["sqlite:///jobs#1.db", "sqlite:///jo\nbs.db", "sqlite:///jo\tbs.db", "sqlite:///jobs.db#x"],
    ids=ascii,
)
def test_address_never_names_another_file_than_it_spells(url: str) -> None:
    try:
        store = _opened(url)
    except ConfigurationError:
        return

    assert store.path.name == url.removeprefix("sqlite:///")


@pytest.mark.parametrize(
    "url",
    ["", "jobs.db", "/var/jobs.db", "sqlite", "mysql://x/y", "SQLITE:///x.db", "file:x.db"],
)
def test_what_is_no_store_s_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)

    assert repr(shown_address(url)) in str(refused.value)
    assert "sqlite:///jobs.db" in str(refused.value)


@pytest.mark.parametrize("url", [None, 7, b"sqlite:///jobs.db", Path("jobs.db")], ids=repr)
def test_what_is_no_text_is_refused_with_an_example(url: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"sqlite:///jobs\.db"):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://host/jobs.db",
        "sqlite://jobs.db",
        "sqlite:///jo\0bs.db",
        "sqlite:///?busy=1",
    ],
    ids=ascii,
)
def test_address_without_a_file_is_refused_and_told_how_to_write_one(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)

    assert repr(shown_address(url)) in str(refused.value)
    assert "sqlite:///jobs.db" in str(refused.value)
    assert "sqlite:////var/lib/jobs.db" in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite://[", "sqlite://[::1/jobs.db", "sqlite://]/jobs.db"])
def test_malformed_address_is_refused_like_any_other(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)

    assert "sqlite://..." in str(refused.value)


@pytest.mark.parametrize(
    "query", ["timeout=5", "Adopt=true", "busy=1&mode=memory", "cache=shared&x=1"]
)
def test_unknown_option_is_refused_and_the_known_ones_are_named(query: str) -> None:
    with pytest.raises(ConfigurationError, match=r"unknown options .*known: adopt, busy"):
        open_store(f"sqlite:///jobs.db?{query}")


@pytest.mark.parametrize("value", ["", "1", "yes", "TRUE", "true "])
def test_adopt_is_true_or_false_and_nothing_else(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"adopt is .*write true or false"):
        open_store(f"sqlite:///jobs.db?adopt={value}")


@pytest.mark.parametrize(
    "value", ["", "soon", "-1", "3601", "nan", "inf", "1e9", "5s", "0x10", "\u0663", "1_0"]
)
def test_busy_is_a_number_of_seconds_within_reason(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"busy is .*write seconds from 0 to 3600"):
        open_store(f"sqlite:///jobs.db?busy={value}")


def test_options_reach_the_store() -> None:
    plain, set_ = _opened("sqlite:///jobs.db"), _opened("sqlite:///jobs.db?busy=0.5&adopt=true")

    assert (plain._busy, plain._adopt) == (BUSY_TIMEOUT_S, False)
    assert (set_._busy, set_._adopt) == (0.5, True)


async def test_file_whose_name_sqlite_would_read_as_an_address_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        store = _opened("sqlite:///file::memory:")
    except ConfigurationError:
        return

    await store.open()
    job_id = await put(store)
    try:
        assert [job and job.id for job in await store.get([job_id])] == [job_id]
        assert (tmp_path / "file::memory:").exists()
    finally:
        await store.close()


async def test_relative_address_stays_the_same_file_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = _opened("sqlite:///jobs.db")
    await store.open()
    job_id = await put(store)

    monkeypatch.chdir(tmp_path / "elsewhere")

    try:
        assert [job and job.id for job in await store.get([job_id])] == [job_id]
        assert list((tmp_path / "elsewhere").iterdir()) == []
    finally:
        await store.close()
