"""The password of an etcd user is found without being in the URL."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from outlast.errors import ConfigurationError
from outlast.store.keyvalue.engines.etcd.password import FILE_VARIABLE, VARIABLE, find_password


def test_password_of_the_url_wins_over_variable_and_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("of the file\n")
    given = {VARIABLE: "of the variable", FILE_VARIABLE: str(file)}

    assert find_password(urlsplit("etcd://me:of%2Fthe%20url@h/p"), given) == "of/the url"
    assert find_password(urlsplit("etcd://me@h/p"), given) == "of the variable"
    assert find_password(urlsplit("etcd://me@h/p"), {FILE_VARIABLE: str(file)}) == "of the file"
    assert find_password(urlsplit("etcd://me@h/p"), {}) is None


def test_without_a_user_no_password_is_sent() -> None:
    assert find_password(urlsplit("etcd://h/p"), {VARIABLE: "s3cret"}) is None


def test_file_that_cannot_be_read_is_named_with_its_variable(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")

    for name, why in (("none", "No such file"), ("binary", "no UTF-8 text")):
        with pytest.raises(ConfigurationError, match=rf"{FILE_VARIABLE} is .*{name}.*{why}"):
            find_password(urlsplit("etcd://me@h/p"), {FILE_VARIABLE: str(tmp_path / name)})
