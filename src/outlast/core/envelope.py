"""Envelopes: the stored forms of a text that is not stored as it is.

An envelope is a JSON text that begins with `MARK`. Payloads that begin with it are escaped before
they are stored, so no param or result of a user can be taken for an envelope.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from outlast.errors import PayloadUnreadable

if TYPE_CHECKING:
    from outlast.core.failure import ExceptionInfo

MARK: Final = '{"$outlast":'
"""How every envelope begins; JSON of this package has no space there."""

_LITERAL: Final = '{"$outlast":"literal","value":'
_MAX_FRAMES: Final = 20
_ASCII: Final = json.JSONEncoder(separators=(",", ":"))
_UNICODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class Form(StrEnum):
    """Form of an envelope; it stands in the stored text."""

    ENCODED = "encoded"  # the text of a payload codec
    LITERAL = "literal"  # a payload that begins as an envelope does
    LAYERS = "layers"  # params of a template, and those of a schedule over them
    LOST = "not stored"  # the payload codec failed when the run had ended


@dataclass(frozen=True, slots=True)
class PayloadContext:
    """What a text belongs to. It is the same whenever the text is encoded and decoded.

    Attributes:
        kind: `params`, `result`, `error`, `progress`, `reason` or `log`.
        owner: Of params the name of the job type, which every retry and copy keeps; of all
            others the id of the job.
    """

    kind: str
    owner: str

    def to_bytes(self) -> bytes:
        """Return the context for a cipher that authenticates it."""
        return f"outlast {len(self.kind)} {self.kind} {self.owner}".encode()


@dataclass(frozen=True, slots=True)
class EncodedPayload:
    """What a payload codec makes of a text: another text, and the id of the key it used."""

    text: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """A parsed envelope; the form is None if its text is damaged or of a newer release."""

    form: Form | None
    codec: str = "?"
    payload: EncodedPayload | None = None
    layers: tuple[str, ...] = ()
    why: str = ""
    error_type: str | None = None

    @property
    def label(self) -> str:
        """What is shown in place of the text: `encrypted (key 2026-11)`."""
        match self.form:
            case Form.ENCODED if self.payload is not None and self.payload.key is not None:
                return f"encrypted (key {self.payload.key})"
            case Form.ENCODED:
                return f"encoded (codec {self.codec})"
            case Form.LAYERS:
                labels = (label(each) for each in self.layers)
                return next((each for each in labels if each is not None), "plain")
            case Form.LOST:
                return f"not stored: {self.why}"
            case _:
                return "an envelope that cannot be read"


def encoded(codec: str, payload: EncodedPayload, raised: "ExceptionInfo | None" = None) -> str:
    """Return the envelope of an encoded text; `raised` is readable in it without a key."""
    key = {} if payload.key is None else {"key": payload.key}
    return _text(Form.ENCODED, {"codec": codec, **key, "text": payload.text, **_signature(raised)})


def lost(codec: str, why: str, raised: "ExceptionInfo | None" = None) -> str:
    """Return the envelope that stands for a text which the codec could not encode."""
    return _text(Form.LOST, {"codec": codec, "why": why, **_signature(raised)})


def escape(text: str) -> str:
    """Return a payload so that it is no envelope."""
    return f"{_LITERAL}{text}}}" if text.startswith(MARK) else text


def merged(texts: Sequence[str]) -> str:
    """Return params of which later ones replace earlier ones, as far as they can be read."""
    if any(each.startswith(MARK) for each in texts):
        return _to_json({"$outlast": Form.LAYERS, "layers": [json.loads(each) for each in texts]})
    return merge_plain(texts)


def merge_plain(texts: Sequence[str]) -> str:
    """Return params as JSON of which later ones replace earlier ones, each value as a whole."""
    params: dict[str, Any] = {}
    for each in texts:
        params |= json.loads(each)
    return _to_json(params)


def plain(text: str, what: str) -> str:
    """Return the payload in a text; PayloadUnreadable if a codec is needed to read it."""
    if not text.startswith(MARK):
        return text
    if text.startswith(_LITERAL):
        return text[len(_LITERAL) : -1]
    envelope = parse(text)
    if envelope.form is Form.LAYERS:
        return merge_plain([plain(each, what) for each in envelope.layers])
    raise PayloadUnreadable(f"{what}: {envelope.label}; {_remedy(envelope)}")


def parse(text: str) -> Envelope:
    """Return the parts of a text that begins with `MARK`."""
    try:
        fields = json.loads(text)
        return _PARSERS[Form(fields["$outlast"])](fields)
    except (ValueError, KeyError, TypeError, RecursionError):
        return Envelope(None)


def label(text: str | None) -> str | None:
    """Return what is shown in place of a text that cannot be read; None if it can be."""
    if text is None or not text.startswith(MARK) or text.startswith(_LITERAL):
        return None
    envelope = parse(text)
    if envelope.form is Form.LAYERS and not any(label(each) for each in envelope.layers):
        return None
    return envelope.label


def readable(text: str | None) -> str | None:
    """Return the text for people: its label if a codec is needed to read it."""
    if text is None or not text.startswith(MARK):
        return text
    return label(text) or plain(text, "text")


def _remedy(envelope: Envelope) -> str:
    if envelope.form is Form.LOST:
        return "the value is gone; repair the codec, then retry the job"
    if envelope.form is None:
        return "upgrade this process, or correct the stored text"
    return "give the app the codec that wrote it, with that key: Outlast(codec=…)"


def _text(form: Form, fields: dict[str, Any]) -> str:
    return _ASCII.encode({"$outlast": form, **fields})


def _to_json(value: object) -> str:
    return _UNICODE.encode(value)


def _signature(raised: "ExceptionInfo | None") -> dict[str, Any]:
    """Return the class and the frames of an error, without its message and lines of code."""
    if raised is None:
        return {}
    module = "" if raised.module == "builtins" else f"{raised.module}."
    frames = [f"{each.file}:{each.line} {each.function}" for each in raised.frames[-_MAX_FRAMES:]]
    return {"error": {"type": f"{module}{raised.type}", "frames": frames}}


def _encoded(fields: dict[str, Any]) -> Envelope:
    text, key = fields["text"], fields.get("key")
    if not isinstance(text, str) or not isinstance(key, str | None):
        raise TypeError(fields)
    payload = EncodedPayload(text, key)
    return Envelope(Form.ENCODED, str(fields["codec"]), payload, error_type=_error_type(fields))


def _layers(fields: dict[str, Any]) -> Envelope:
    return Envelope(Form.LAYERS, layers=tuple(map(_to_json, fields["layers"])))


def _lost(fields: dict[str, Any]) -> Envelope:
    why, kind = str(fields["why"]), _error_type(fields)
    return Envelope(Form.LOST, str(fields["codec"]), why=why, error_type=kind)


def _error_type(fields: dict[str, Any]) -> str | None:
    return str(fields["error"]["type"]) if "error" in fields else None


_PARSERS: Final = {Form.ENCODED: _encoded, Form.LAYERS: _layers, Form.LOST: _lost}
