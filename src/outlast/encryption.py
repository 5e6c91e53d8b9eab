"""Payload codec that encrypts with AES-GCM: what jobs store is unreadable without the key.

Needs `outlast[encryption]`. A key is 32 random bytes, written as base64; print a new one with
`python -m outlast.encryption`.
"""

import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from outlast.core.envelope import EncodedPayload, PayloadContext
from outlast.core.limits import check_name, repr_short
from outlast.errors import ConfigurationError, OperatorError, PayloadUnreadable

__all__ = ["AESGCMCodec", "new_key"]

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12

KEYS_VARIABLE: Final = "OUTLAST_KEYS"
"""Environment variable that `AESGCMCodec.from_environment` reads."""

_MAKE_ONE: Final = "make a key with `python -m outlast.encryption`"
_FORMAT: Final = "write `2026-11=KEY`, several separated by commas or lines, the current one first"


class AESGCMCodec:
    """Encrypts each text with AES-256-GCM and a nonce of its own.

    `Outlast(url, codec=AESGCMCodec(keys={"2026-11": key}, current="2026-11"))`. New texts are
    encrypted with the current key. The others decrypt what was encrypted with them. The context
    of a text is authenticated: params decrypt only for their job type, all else only for its job.

    Args:
        keys: Keys by id, each 32 bytes or their base64. The id is stored in clear with each text.
        current: Id of the key for new texts.
        random: Source of the nonces.

    Raises:
        ConfigurationError: A key or an id cannot be used. No message contains a key.
        OperatorError: `cryptography` is not installed.
    """

    name = "aesgcm"

    def __init__(
        self,
        keys: Mapping[str, bytes | str],
        current: str,
        *,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._ciphers = {
            check_name(key, what="the id of a key"): _cipher(key, keys[key]) for key in keys
        }
        if current not in self._ciphers:
            raise ConfigurationError(
                f"the current key is {repr_short(current)}, which is not among the keys "
                f"{self._known}; {_MAKE_ONE}"
            )
        self.current: Final = current
        self._random = random

    @classmethod
    def from_environment(cls, variable: str = KEYS_VARIABLE) -> "AESGCMCodec":
        """Return a codec with the keys in an environment variable: `2026-11=KEY,2026-05=KEY`.

        The first key is the current one.
        """
        text = os.environ.get(variable, "")
        if not text.strip():
            raise ConfigurationError(
                f"{variable} is not set, and the payloads need a key; {_MAKE_ONE}, then set "
                f"{variable}=2026-11=KEY"
            )
        return cls._from_text(text, variable)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "AESGCMCodec":
        """Return a codec with the keys in a file, one `2026-11=KEY` per line, the current first."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ConfigurationError(
                f"the keys in {os.fspath(path)} cannot be read: {reason}; {_MAKE_ONE}, and write "
                "it to that file as 2026-11=KEY"
            ) from None
        return cls._from_text(text, os.fspath(path))

    @classmethod
    def _from_text(cls, text: str, where: str) -> "AESGCMCodec":
        lines = [each.strip() for each in text.replace(",", "\n").splitlines()]
        pairs = [each.partition("=") for each in lines if each and not each.startswith("#")]
        keys = {key.strip(): value.strip() for key, _, value in pairs}
        if not keys or len(keys) < len(pairs) or not all(value for _, _, value in pairs):
            raise ConfigurationError(
                f"{where} holds no keys, an id twice, or a key without an id; {_FORMAT}"
            )
        return cls(keys, next(iter(keys)))

    def encode(self, text: str, context: PayloadContext) -> EncodedPayload:
        """Encrypt a text with the current key."""
        nonce = self._random(NONCE_BYTES)
        cipher = self._ciphers[self.current]
        sealed = cipher.encrypt(nonce, text.encode(), self._bound(self.current, context))
        return EncodedPayload(b64encode(nonce + sealed).decode(), self.current)

    def decode(self, payload: EncodedPayload, context: PayloadContext) -> str:
        """Decrypt a text; PayloadUnreadable names a key that is missing."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

        key = payload.key or ""
        if key not in self._ciphers:
            raise PayloadUnreadable(
                f"encrypted (key {key}), and the codec has the keys {self._known}; add key {key}"
            )
        try:
            raw = b64decode(payload.text, validate=True)
            bound = self._bound(key, context)
            clear: bytes = self._ciphers[key].decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], bound)
            return clear.decode()
        except (InvalidTag, Base64Error, ValueError):
            raise PayloadUnreadable(
                f"encrypted (key {key}), and does not decrypt: the text was changed, belongs to "
                f"another job or type, or key {key} was another key when it was written"
            ) from None

    @property
    def _known(self) -> str:
        return ", ".join(self._ciphers) or "none"

    @staticmethod
    def _bound(key: str, context: PayloadContext) -> bytes:
        return key.encode() + b"\0" + context.to_bytes()

    def __repr__(self) -> str:
        return f"AESGCMCodec(keys={self._known}; current={self.current})"

    def __reduce__(self) -> Any:
        raise TypeError("an AESGCMCodec is not pickled: that would copy its keys")


def new_key(random: Callable[[int], bytes] = os.urandom) -> str:
    """Return a new key as base64."""
    return b64encode(random(KEY_BYTES)).decode()


def _cipher(key_id: str, key: object) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OperatorError(
            'cryptography is not installed; run `pip install "outlast[encryption]"`'
        ) from error
    raw = _key_bytes(key)
    if raw is None or len(raw) != KEY_BYTES:
        found = "no base64" if raw is None else f"{len(raw)} bytes"
        raise ConfigurationError(
            f"key {key_id} is {found}; a key is {KEY_BYTES} bytes or their base64; {_MAKE_ONE}"
        )
    return AESGCM(raw)


def _key_bytes(key: object) -> bytes | None:
    if isinstance(key, bytes | bytearray):
        return bytes(key)
    try:
        return b64decode(key, validate=True) if isinstance(key, str) else None
    except ValueError:
        return None


if __name__ == "__main__":
    print(new_key())  # noqa: T201 - the output of the command
