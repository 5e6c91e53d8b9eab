"""Envelopes: texts that say how they are stored, and that no text of a user is taken for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.envelope import (
    MARK,
    EncodedPayload,
    Form,
    PayloadContext,
    encoded,
    escape,
    label,
    lost,
    merged,
    parse,
    plain,
    readable,
)
from outlast.core.failure import ExceptionInfo, Frame, split_error
from outlast.core.progress import describe_progress
from outlast.errors import PayloadUnreadable

PAYLOAD = EncodedPayload('"ö\n', "2026-11")
SECRET_ERROR = ExceptionInfo(
    type="Refused",
    module="bank",
    message="of hunter2",
    frames=(Frame("bank.py", 7, "pay", "raise Refused('hunter2')"),),
)

names = st.one_of(st.just("$outlast"), st.text(max_size=3))
objects = st.dictionaries(names, st.one_of(st.integers(), names), max_size=3)


@given(objects)
def test_no_payload_is_taken_for_an_envelope(value: dict[str, object]) -> None:
    text = json.dumps(value, separators=(",", ":"))

    stored = escape(text)

    assert json.loads(stored) is not None
    assert label(stored) is None
    assert plain(stored, "params") == text
    assert readable(stored) == text


def test_a_forged_envelope_of_a_user_stays_the_users_value() -> None:
    forged = encoded("aesgcm", PAYLOAD)

    assert plain(escape(forged), "result") == forged
    assert plain(escape(escape(forged)), "result") == escape(forged)


@given(st.text(), st.one_of(st.none(), st.text(max_size=5)))
def test_an_envelope_holds_any_text_and_is_one_line_of_json(text: str, key: str | None) -> None:
    envelope = encoded("c", EncodedPayload(text, key))

    assert envelope.startswith(MARK)
    assert envelope.isascii()
    assert "\n" not in envelope
    assert parse(envelope).payload == EncodedPayload(text, key)
    assert parse(envelope).form is Form.ENCODED


def test_a_label_names_the_key_or_the_codec() -> None:
    assert label(encoded("aesgcm", PAYLOAD)) == "encrypted (key 2026-11)"
    assert label(encoded("gzip", EncodedPayload("x"))) == "encoded (codec gzip)"
    assert label(lost("gzip", "codec gzip raised KeyError")) == (
        "not stored: codec gzip raised KeyError"
    )
    assert label('{"a":1}') is None
    assert label(None) is None


@pytest.mark.parametrize(
    "text",
    [
        MARK,
        MARK + "1}",
        MARK + '"encoded"}',
        MARK + '"encoded","codec":"c","text":3}',
        MARK + '"newer"}',
        MARK + '"layers","layers":3}',
        MARK + "[" * 100_000,
    ],
)
def test_a_damaged_envelope_is_said_to_be_one(text: str) -> None:
    assert parse(text).form is None
    assert label(text) == "an envelope that cannot be read"
    with pytest.raises(PayloadUnreadable, match="cannot be read; upgrade this process"):
        plain(text, "params")


def test_of_an_error_class_and_frames_stay_readable_and_nothing_else() -> None:
    envelope = encoded("aesgcm", PAYLOAD, SECRET_ERROR)

    assert json.loads(envelope)["error"] == {"type": "bank.Refused", "frames": ["bank.py:7 pay"]}
    assert "hunter2" not in envelope
    error = split_error(envelope)
    assert (error.type, error.message) == ("bank.Refused", "encrypted (key 2026-11)")


def test_an_error_text_that_looks_like_an_envelope_is_shown_as_it_is() -> None:
    forged = encoded("aesgcm", PAYLOAD)

    assert split_error(escape(forged)).message == forged


def test_encoded_progress_is_shown_by_its_label() -> None:
    assert describe_progress(encoded("aesgcm", PAYLOAD)) == "encrypted (key 2026-11)"


def test_params_that_cannot_be_read_are_laid_over_each_other() -> None:
    hidden = encoded("aesgcm", PAYLOAD)

    text = merged([hidden, '{"a":1}'])

    below, above = parse(text).layers
    assert parse(below) == parse(hidden)
    assert above == '{"a":1}'
    assert label(text) == "encrypted (key 2026-11)"
    with pytest.raises(PayloadUnreadable, match="key 2026-11"):
        plain(text, "params")


def test_layers_that_can_be_read_are_one_value() -> None:
    text = merged([escape('{"$outlast":1,"b":2}'), '{"b":3}'])

    assert label(text) is None
    assert json.loads(plain(text, "params")) == {"$outlast": 1, "b": 3}
    assert readable(text) == plain(text, "params")


def test_contexts_differ_in_bytes() -> None:
    contexts = [
        PayloadContext("params", "a"),
        PayloadContext("params", 'a","b'),
        PayloadContext("result", "a"),
        PayloadContext("params\x00", "a"),
    ]

    assert len({each.to_bytes() for each in contexts}) == len(contexts)
