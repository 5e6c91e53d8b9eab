"""AES-GCM codec: keys by id, a nonce per text, and the context that a text is bound to."""

import pickle
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import ConfigurationError, OperatorError, PayloadUnreadable
from outlast.core.envelope import EncodedPayload, PayloadContext
from outlast.encryption import KEY_BYTES, AESGCMCodec, new_key

OLD, NEW = new_key(lambda size: b"o" * size), new_key(lambda size: b"n" * size)
HERE = PayloadContext("params", "send")


def test_every_text_comes_back() -> None:
    codec = AESGCMCodec({"k": NEW}, "k")

    @given(st.text(), st.text(), st.text())
    def comes_back(text: str, kind: str, owner: str) -> None:
        context = PayloadContext(kind, owner)
        assert codec.decode(codec.encode(text, context), context) == text

    comes_back()


def test_after_a_rotation_old_texts_are_read_and_new_ones_use_the_new_key() -> None:
    before = AESGCMCodec({"2026-05": OLD}, "2026-05").encode("old", HERE)
    rotated = AESGCMCodec({"2026-11": NEW, "2026-05": OLD}, "2026-11")

    after = rotated.encode("new", HERE)

    assert (before.key, after.key) == ("2026-05", "2026-11")
    assert (rotated.decode(before, HERE), rotated.decode(after, HERE)) == ("old", "new")


def test_a_key_that_is_missing_is_named() -> None:
    payload = AESGCMCodec({"2026-05": OLD}, "2026-05").encode("old", HERE)

    with pytest.raises(PayloadUnreadable, match=r"key 2026-05.*has the keys 2026-11; add key 2026"):
        AESGCMCodec({"2026-11": NEW}, "2026-11").decode(payload, HERE)


def test_one_text_is_never_encrypted_alike() -> None:
    codec = AESGCMCodec({"k": NEW}, "k")

    assert len({codec.encode("same", HERE).text for _ in range(100)}) == 100


def test_the_nonce_is_drawn_for_each_text() -> None:
    drawn: list[int] = []

    def random(size: int) -> bytes:
        drawn.append(size)
        return bytes([len(drawn)]) * size

    codec = AESGCMCodec({"k": NEW}, "k", random=random)

    nonces = [b64decode(codec.encode("x", HERE).text)[:12] for _ in range(2)]

    assert drawn == [12, 12]
    assert nonces == [b"\x01" * 12, b"\x02" * 12]


@pytest.mark.parametrize(
    "change",
    [
        lambda payload, _: (payload, PayloadContext("params", "other")),
        lambda payload, _: (payload, PayloadContext("result", "send")),
        lambda payload, _: (replace(payload, key="other"), HERE),
        lambda payload, _: (replace(payload, text=_flipped(payload.text)), HERE),
        lambda payload, _: (replace(payload, text=payload.text[:8]), HERE),
        lambda payload, _: (replace(payload, text=""), HERE),
        lambda payload, _: (replace(payload, text="no base64!"), HERE),
        lambda payload, _: (replace(payload, text="ö"), HERE),
    ],
)
def test_a_changed_text_or_another_context_is_refused(
    change: Callable[[EncodedPayload, None], tuple[EncodedPayload, PayloadContext]],
) -> None:
    codec = AESGCMCodec({"k": NEW, "other": OLD}, "k")
    payload, context = change(codec.encode("secret", HERE), None)

    with pytest.raises(PayloadUnreadable, match="does not decrypt") as refused:
        codec.decode(payload, context)

    assert refused.value.__suppress_context__


def _flipped(text: str) -> str:
    raw = bytearray(b64decode(text))
    raw[-1] ^= 1
    return b64encode(raw).decode()


def test_the_same_id_with_another_key_is_refused() -> None:
    payload = AESGCMCodec({"k": OLD}, "k").encode("secret", HERE)

    with pytest.raises(PayloadUnreadable, match="key k was another key"):
        AESGCMCodec({"k": NEW}, "k").decode(payload, HERE)


def test_no_text_of_the_codec_shows_a_key() -> None:
    codec = AESGCMCodec({"2026-11": NEW, "2026-05": b64decode(OLD)}, "2026-11")

    shown = f"{codec} {codec!r}"

    assert "2026-11" in shown
    assert NEW not in shown
    assert OLD not in shown
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(codec)


@pytest.mark.parametrize("key", ["short", "no base64 at all!", b"x" * 31, "x" * 5000, "ö", 3, None])
def test_a_bad_key_is_named_by_its_id_and_never_shown(key: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"key 2026-11 is .*outlast\.encryption"
    ) as refused:
        AESGCMCodec({"2026-11": key}, "2026-11")  # type: ignore[dict-item]

    assert "short" not in str(refused.value)
    assert "x" * 31 not in str(refused.value)


def test_the_current_key_must_be_among_the_keys() -> None:
    with pytest.raises(ConfigurationError, match=r"current key is '2027'.*among the keys 2026"):
        AESGCMCodec({"2026": NEW}, "2027")
    with pytest.raises(ConfigurationError, match="among the keys none"):
        AESGCMCodec({}, "2027")


def test_the_first_key_of_the_environment_is_the_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTLAST_KEYS", f" 2026-11={NEW} , 2026-05={OLD}\n")

    codec = AESGCMCodec.from_environment()

    assert codec.current == "2026-11"
    old = AESGCMCodec({"2026-05": OLD}, "2026-05").encode("x", HERE)
    assert codec.decode(old, HERE) == "x"


def test_a_file_has_one_key_per_line_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# newest first\n2026-11={NEW}\n\n2026-05={OLD}\n")

    assert AESGCMCodec.from_file(file).current == "2026-11"


@pytest.mark.parametrize(
    "text", [NEW, f"a={NEW},a={OLD}", "a=", "=", "#"], ids=["no id", "twice", "no key", "=", "#"]
)
def test_keys_that_cannot_be_read_name_the_form_and_show_nothing(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_KEYS", text)

    with pytest.raises(ConfigurationError, match=r"OUTLAST_KEYS|key |id of a key") as refused:
        AESGCMCodec.from_environment()

    assert NEW.rstrip("=") not in str(refused.value)


def test_missing_keys_come_with_the_command_that_makes_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OUTLAST_KEYS", raising=False)

    with pytest.raises(ConfigurationError, match=r"not set.*`python -m outlast.encryption`"):
        AESGCMCodec.from_environment()
    with pytest.raises(ConfigurationError, match=r"gone cannot be read: No such file.*`python -m"):
        AESGCMCodec.from_file(tmp_path / "gone")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="it is no text"):
        AESGCMCodec.from_file(tmp_path / "binary")


def test_the_command_prints_a_new_key() -> None:
    command = [sys.executable, "-m", "outlast.encryption"]
    keys = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        for _ in range(2)
    ]

    assert [len(b64decode(key)) for key in keys] == [KEY_BYTES] * 2
    assert keys[0] != keys[1]


def test_without_cryptography_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)

    with pytest.raises(OperatorError, match=r'pip install "outlast\[encryption\]"'):
        AESGCMCodec({"k": NEW}, "k")
