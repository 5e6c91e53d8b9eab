"""Puts texts into envelopes before they are stored, and reads them back, with the app's codec."""

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from outlast.core.envelope import (
    MARK,
    EncodedPayload,
    Envelope,
    Form,
    PayloadContext,
    encoded,
    lost,
    merged,
    parse,
)
from outlast.core.event import EventRecord
from outlast.core.failure import ExceptionInfo
from outlast.core.job import Job
from outlast.core.limits import (
    MAX_ERROR,
    MAX_PAYLOAD,
    MAX_PROGRESS,
    check_name,
    is_storable,
    truncate,
)
from outlast.core.run import RunRecord
from outlast.core.run_log import MAX_CHUNK
from outlast.errors import (
    CodecFailed,
    InvalidArgument,
    InvalidType,
    PayloadTooLarge,
    PayloadUnreadable,
)

log = logging.getLogger("outlast.jobs")

T = TypeVar("T", Job, RunRecord, EventRecord)

_FIELDS: Final[dict[type, dict[str, str]]] = {
    Job: {"params": "params", "progress": "progress", "reason": "reason"},
    RunRecord: {
        "params_snapshot": "params",
        "result": "result",
        "error": "error",
        "progress": "progress",
        "reason": "reason",
    },
    EventRecord: {"reason": "reason", "detail": "error"},
}
"""Fields of records that may hold envelopes, with the kind of their context."""

_ATTEMPTS: Final = 4
_SPARE_BYTES: Final = 256
_TOO_LARGE: Final = "its encoded text is too large"


@runtime_checkable
class PayloadCodec(Protocol):
    """Encodes what jobs store, such as by encryption: `Outlast(url, codec=…)`.

    Both methods must be thread-safe and quick: they run for every job, on the event loop. What
    they raise is shown by its class alone, since its message may quote a payload or a key.
    """

    @property
    def name(self) -> str:
        """Name of the codec, which stands in each envelope; it must never change."""
        ...

    def encode(self, text: str, context: PayloadContext) -> EncodedPayload:
        """Return a text from which `decode` restores `text` in the same context."""
        ...

    def decode(self, payload: EncodedPayload, context: PayloadContext) -> str:
        """Return the text; PayloadUnreadable, with what is missing, if that is not possible."""
        ...


class PlainText(str):
    """A decoded text. Its `repr` does not show it, and so no `repr` of a record does."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self):,} decoded characters>"


class Envelopes:
    """The envelopes of one app; without a codec every text is stored as it is."""

    __slots__ = ("codec",)

    def __init__(self, codec: PayloadCodec | None = None) -> None:
        """Create the envelopes of an app; InvalidType if `codec` is no payload codec."""
        if codec is not None:
            _check_codec(codec)
        self.codec: Final = codec

    def wrap(self, text: str, context: PayloadContext, *, what: str) -> str:
        """Return the text to store; CodecFailed or PayloadTooLarge if there is none."""
        if self.codec is None:
            return text
        envelope = encoded(self.codec.name, _encode(self.codec, text, context, what))
        if len(envelope) > MAX_PAYLOAD:
            raise PayloadTooLarge(
                f"{what} is {len(envelope):,} bytes as codec {self.codec.name} encodes it, and "
                f"{len(text.encode()):,} before; the limit is {MAX_PAYLOAD // 1024} KiB, so store "
                "the data elsewhere and pass a reference to it"
            )
        return envelope

    def wrap_end(self, text: str, context: PayloadContext) -> str:
        """Return what to store of a run; a mark in place of the text if the codec fails.

        The run has happened, so its end is stored in any case. PayloadTooLarge as by `wrap`.
        """
        try:
            return self.wrap(text, context, what=context.kind)
        except CodecFailed as failed:
            return self._lost(context, failed)

    def wrap_progress(self, text: str, job_id: str) -> str:
        """Return the progress to store; a mark if the codec fails or its text is too long."""
        if self.codec is None:
            return text
        with suppress(PayloadTooLarge):
            envelope = self.wrap_end(text, PayloadContext("progress", job_id))
            if len(envelope) <= MAX_PROGRESS:
                return envelope
        return lost(self.codec.name, _TOO_LARGE)

    def wrap_log(self, text: str, job_id: str) -> str:
        """Return lines of a run to store; a mark if the codec fails or its text is too long.

        It logs nothing: the line would be one of the run.
        """
        if self.codec is None:
            return text
        try:
            envelope = self.wrap(text, PayloadContext("log", job_id), what="log")
        except (CodecFailed, PayloadTooLarge) as failed:
            return lost(self.codec.name, str(failed).partition(": ")[2])
        return envelope if len(envelope) <= MAX_CHUNK else lost(self.codec.name, _TOO_LARGE)

    def wrap_error(
        self, text: str, context: PayloadContext, raised: ExceptionInfo | None = None
    ) -> str:
        """Return an error text to store, cut so that it fits; class and frames stay readable."""
        if self.codec is None:
            return text
        try:
            for _ in range(_ATTEMPTS):
                payload = _encode(self.codec, text, context, context.kind)
                envelope = encoded(self.codec.name, payload, raised)
                if len(envelope) <= MAX_ERROR:
                    return envelope
                size = len(text.encode()) * MAX_ERROR // len(envelope)
                text = truncate(text, size - _SPARE_BYTES)
        except CodecFailed as failed:
            return self._lost(context, failed, raised)
        return lost(self.codec.name, _TOO_LARGE, raised)

    def unwrap(self, text: str, context: PayloadContext, *, what: str) -> str:
        """Return the payload of a stored text; PayloadUnreadable if a codec or key is missing."""
        if not text.startswith(MARK):
            return text
        envelope = parse(text)
        if envelope.form is Form.LAYERS:
            return merged([self.unwrap(each, context, what=what) for each in envelope.layers])
        return self._decode(envelope, context, what) if envelope.payload is not None else text

    def unwrap_result(self, text: str | None, job: Job) -> str | None:
        """Return the payload of a job's stored result; PayloadUnreadable if it cannot be read."""
        if text is None or not text.startswith(MARK):
            return text
        what = f'result of "{job.type}", job {job.id}'
        return self.unwrap(text, PayloadContext("result", job.id), what=what)

    def reveal(self, record: T, job_type: str | None = None) -> T:
        """Return the record with each text decoded that this app can decode.

        The params of a run are decoded if `job_type` is given.
        """
        if self.codec is None:
            return record
        of_type = record.type if isinstance(record, Job) else job_type
        owner = record.id if isinstance(record, Job) else record.job_id
        fields: dict[str, Any] = {}
        for name, kind in _FIELDS[type(record)].items():
            text: str | None = getattr(record, name)
            of = of_type if kind == "params" else owner
            if text is not None and of is not None and text.startswith(MARK):
                fields[name] = self.reveal_text(text, PayloadContext(kind, of))
        return replace(record, **fields) if fields else record

    def reveal_text(self, text: str, context: PayloadContext) -> str:
        """Return the decoded text; the text itself if it is plain or cannot be decoded."""
        if not text.startswith(MARK):
            return text
        try:
            return PlainText(self.unwrap(text, context, what=context.kind))
        except PayloadUnreadable:
            return text

    def _decode(self, envelope: Envelope, context: PayloadContext, what: str) -> str:
        codec, payload = self.codec, envelope.payload
        assert payload is not None
        if codec is None or codec.name != envelope.codec:
            own = "has no codec" if codec is None else f"has codec {codec.name}"
            raise PayloadUnreadable(
                f"{what}: {envelope.label}, by codec {envelope.codec}, and this app {own}; give "
                "it the codec that encoded it, with that key: Outlast(codec=…)"
            )
        try:
            text = codec.decode(payload, context)
        except PayloadUnreadable as error:
            raise PayloadUnreadable(f"{what}: {error}") from None
        except Exception as error:  # noqa: BLE001 - code of the user
            raise PayloadUnreadable(
                f"{what}: {envelope.label}; codec {codec.name} raised {_class_and_place(error)}"
            ) from None
        if not isinstance(text, str):
            raise PayloadUnreadable(
                f"{what}: codec {codec.name} decoded a {type(text).__name__}; return text"
            )
        return text

    def _lost(
        self, context: PayloadContext, failed: CodecFailed, raised: ExceptionInfo | None = None
    ) -> str:
        assert self.codec is not None
        log.error("%s not stored job=%s: %s", context.kind, context.owner, failed)
        return lost(self.codec.name, str(failed).partition(": ")[2], raised)


def _encode(codec: PayloadCodec, text: str, context: PayloadContext, what: str) -> EncodedPayload:
    try:
        payload: Any = codec.encode(text, context)
    except Exception as error:  # noqa: BLE001 - code of the user
        raise CodecFailed(
            f"{what} cannot be encoded: codec {codec.name} raised {_class_and_place(error)}"
        ) from None
    if not isinstance(payload, EncodedPayload) or not isinstance(payload.text, str):
        kind = type(getattr(payload, "text", payload)).__name__
        raise CodecFailed(
            f"{what} cannot be encoded: codec {codec.name} returned a {kind}; return "
            "EncodedPayload(text)"
        )
    if payload.key is not None and not _is_name(payload.key):
        raise CodecFailed(
            f"{what} cannot be encoded: codec {codec.name} named no valid key; use 1 to 128 of the "
            "characters A-Z a-z 0-9 _ . : -"
        )
    if not is_storable(payload.text):
        raise CodecFailed(
            f"{what} cannot be encoded: the text of codec {codec.name} holds NUL or a lone "
            "surrogate, which cannot be stored; return base64"
        )
    return payload


def _is_name(key: object) -> bool:
    try:
        return bool(check_name(key, what="key"))  # type: ignore[arg-type]  # checked by it
    except InvalidArgument:
        return False


def _class_and_place(error: Exception) -> str:
    """Return the class of an error and where it was raised; its message may quote a payload."""
    frames = extract_tb(error.__traceback__)
    return f"{type(error).__name__} at {Path(frames[-1].filename).name}:{frames[-1].lineno}"


def _check_codec(codec: object) -> None:
    if isinstance(codec, type) or not isinstance(codec, PayloadCodec):
        kind = codec.__name__ if isinstance(codec, type) else type(codec).__name__
        raise InvalidType(
            f"codec is a {kind}, which is no payload codec; give an object with name, encode and "
            "decode, such as AESGCMCodec.from_environment() of outlast.encryption"
        )
    try:
        check_name(codec.name, what="the name of the codec")
    except InvalidArgument as error:
        raise InvalidType(str(error)) from None
