"""No part of a password leaves an address, however it is written and wherever it is shown."""

import contextlib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import asyncpg
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from outlast import Outlast
from outlast.cli.main import main
from outlast.cli.target import find
from outlast.core.address import SHOWN_OPTIONS, read_address, shown_address
from outlast.core.transfer_status import TransferStage, TransferStatus, closed_error
from outlast.errors import OutlastError, TransitionRefused
from outlast.store.open import open_store
from outlast.store.postgres.connection import translate_error
from outlast.store.postgres.url import parse_url
from outlast.transfer import address_of

CANARY = "hunter2"
PARTS = st.sampled_from(
    [
        *"/?#@:&=;%[],. ",
        "://",
        "%2F",
        "%40",
        "?password=",
        "&busy=1&",
        "\uff0f",
        "\uff20",
        "ü",
        "1",
        "ab",
        "\t",
    ]
)
PASSWORDS = st.builds(
    lambda before, after: f"{''.join(before)}{CANARY}{''.join(after)}",
    st.lists(PARTS, max_size=5),
    st.lists(PARTS, max_size=5),
)
TEMPLATES = (
    "{scheme}://me:{password}@h.example:5432/db",
    "{scheme}://:{password}@h.example/db?schema=jobs",
    "{scheme}://{password}@h.example",
    "{scheme}://me:{password}@h.example,g.example:1/db?wait=1",
    "{scheme}://h.example/db?user=me&password={password}",
    "{scheme}://h.example/db?passwd={password}&schema=jobs",
    "{scheme}://me:{password}@",
    "me:{password}@h.example/db",
)
SCHEMES = ("postgresql", "postgres", "etcd", "dynamodb", "redis", "mysql", "postgresql+asyncpg")


@st.composite
def hostile_addresses(draw: st.DrawFn) -> str:
    """Return an address with the canary in its password."""
    template = draw(st.sampled_from(TEMPLATES))
    return template.format(scheme=draw(st.sampled_from(SCHEMES)), password=draw(PASSWORDS))


EXAMPLES = (
    "redis://me:a/hunter2@h",
    "etcd://me:hun?hunter2@host/p",
    "etcd://me:a?hunter2&x@host/p",
    "etcd://me:1?hunter2&x@host/p",
    "sqlite://me:hunter2@h/jobs.db",
    "sqlite:///jobs.db?password=hunter2",
    "postgresql://h/db?user=u&password=hunter2",
    "postgresql://me:1/hunter2@h/db",
    "postgresql://me:p#hunter2@h/db",
    "dynamodb://jobs?endpoint=http%3A%2F%2Fme%3Ahunter2%40h",
    "postgresql://h/db?busy=1;password=hunter2",
    "me:hunter2@h",
    "etcd://h/db?user=me&password=&hunter2",
    "postgresql://h/db?user=me&password=&hunter2",
    "sqlite:///jobs.db?password=&hunter2",
)


def with_examples(test: Callable[..., None]) -> Callable[..., None]:
    for each in EXAMPLES:
        test = example(address=each)(test)
    return given(address=hostile_addresses())(test)


@with_examples
def test_what_is_shown_of_an_address_has_no_password(address: str) -> None:
    shown = shown_address(address)

    assert CANARY not in shown
    assert shown_address(shown) == shown


@with_examples
def test_every_error_of_an_address_keeps_the_password_back(address: str) -> None:
    texts = [*_texts_of_store(address), *_texts_of_transfer(address)]

    assert not [text for text in texts if CANARY in text]


def _texts_of_store(address: str) -> Iterator[str]:
    """Every text that is made of an address before a server is asked."""
    try:
        app = Outlast(address)
    except OutlastError:
        yield traceback.format_exc()  # with its causes, as a log has them
        return
    yield f"{app!r} {app.store!r} {app.store.__dict__!r}"
    if address.startswith("postgres"):
        url = parse_url(address)
        yield f"{url!r} {url.safe_text}"
        refused = asyncpg.InvalidPasswordError('password authentication failed for user "me"')
        yield str(translate_error(refused, url))


def _texts_of_transfer(address: str) -> Iterator[str]:
    with contextlib.suppress(TransitionRefused):
        yield address_of(address)
    for stage in TransferStage:
        status = TransferStatus(stage=stage, other=address, transfer_id="me")
        error = closed_error(status) if stage is not TransferStage.OPEN else None
        yield f"{status!r} {error!r} {getattr(error, 'to', '')}"
        yield repr(replace(status, until=datetime.max))  # noqa: DTZ901 - only shown
    yield repr(find(None, address))


def _is_refused(address: str) -> bool:
    """Return False for an address that a command would connect to."""
    with contextlib.suppress(OutlastError):
        open_store(address)
        return read_address(address) is None or address.startswith("sqlite")
    return True


@pytest.mark.parametrize("address", list(filter(_is_refused, EXAMPLES)))
@pytest.mark.parametrize(
    "command",
    [
        ["doctor", "--url"],
        ["db", "status", "--url"],
        ["db", "copy", "--from", "sqlite:///none.db", "--to"],
        ["db", "copy", "--to", "sqlite:///none.db", "--from"],
        ["jobs", "-a"],
        ["worker"],
    ],
    ids=" ".join,
)
def test_no_command_shows_the_password_of_an_address_that_it_refuses(
    command: list[str], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(main, [*command, address], env={"OUTLAST_APP": None})

    assert result.exit_code != 0
    assert CANARY not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:pw@db1:5432,db2/app?schema=jobs&sslmode=require&password=pw",
         "postgresql://db1:5432,db2/app?schema=jobs&sslmode=require"),
        ("postgresql://[::1]:5432/app", "postgresql://[::1]:5432/app"),
        ("postgresql:///app?host=/run/postgresql", "postgresql:///app?host=/run/postgresql"),
        ("postgresql://me:p%40ss%2Fw@h/app", "postgresql://h/app"),
        ("etcd://a:2379,b/prefix?ca=ca.pem&key=me.key", "etcd://a:2379,b/prefix?ca=ca.pem"),
        ("dynamodb://jobs?region=eu-central-1&endpoint=http://127.0.0.1:8000",
         "dynamodb://jobs?region=eu-central-1&endpoint=http://127.0.0.1:8000"),
        ("sqlite:////var/a@b#1.db?busy=3", "sqlite:////var/a@b#1.db?busy=3"),
        ("mysql://root:pw@h/db", "mysql://h/db"),
        ("postgresql://me:a/b@h/db", "postgresql://..."),
    ],
)  # fmt: skip
def test_hosts_path_and_harmless_options_stay_readable(address: str, shown: str) -> None:
    assert shown_address(address) == shown


def test_no_option_that_is_shown_holds_a_credential() -> None:
    assert not SHOWN_OPTIONS & {"user", "password", "passfile", "passwd", "key", "cert", "sslkey"}


def test_address_with_an_unescaped_password_is_refused_with_the_remedy() -> None:
    with pytest.raises(OutlastError, match=r"'etcd://\.\.\.' names no .* write %2F for /"):
        open_store("etcd://me:hun?ter2@host/p")
