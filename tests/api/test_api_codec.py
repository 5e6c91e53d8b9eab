"""An app with a payload codec: what callers store, and what they read with and without the key."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from outlast import (
    CodecFailed,
    EncodedPayload,
    InvalidType,
    JobNotSucceeded,
    Outlast,
    PayloadContext,
    PayloadTooLarge,
    PayloadUnreadable,
    Skip,
)
from outlast.core.envelope import encoded, label
from outlast.core.event import Failed, Skipped, Succeeded
from outlast.core.limits import MAX_PAYLOAD
from outlast.encryption import AESGCMCodec
from outlast.jobs.envelopes import Envelopes, PlainText
from outlast.store.contract.jobs import Filter

KEY, OTHER = b64encode(b"k" * 32).decode(), b64encode(b"o" * 32).decode()
SECRET = "hunter2"  # noqa: S105 - the one that must not be stored


class Faulty:
    """A codec that fails as a test says: `error` is raised, `answer` returned."""

    name = "faulty"

    def __init__(self, *, error: Exception | None = None, answer: Any = None) -> None:
        self.error = error
        self.answer = answer

    def encode(self, text: str, context: PayloadContext) -> EncodedPayload:
        if self.error is not None:
            raise self.error
        return self.answer or EncodedPayload(b64encode(text.encode()).decode())

    def decode(self, payload: EncodedPayload, context: PayloadContext) -> str:
        return self.encode(payload.text, context)  # type: ignore[return-value]  # a wrong type


def coded(store: Any, key: str | None = KEY, key_id: str = "2026-11") -> Outlast:
    """Return an app on that store; without a key it has no codec."""
    codec = None if key is None else AESGCMCodec({key_id: key}, key_id)
    app = Outlast(store, codec=codec, poll="10ms", name="coded")

    @app.job
    async def send(to: str, n: int = 0) -> dict[str, str]:
        return {"to": to}

    return app


@pytest.fixture
async def app(store):
    async with coded(store) as app:
        yield app


@pytest.fixture
async def keyless(store):
    async with coded(store, None) as without:
        yield without


@pytest.fixture
def send(app):
    return app.registry.get("send")


async def stored(store):
    """The params of every job as the store has them."""
    return [job.params for job in await store.find(Filter(), limit=100)]


async def finished(hand, app, handle, result='{"to":"ada"}'):
    """End a job as a worker of that app ends it."""
    claim = await hand.take("send")
    context = PayloadContext("result", handle.id)
    text = app.registry.envelopes.wrap(result, context, what="result")
    await hand.end(claim, Succeeded(text))


# What is stored.


async def test_every_way_to_store_params_encodes_them(app, store, send):
    job = await send.enqueue(to=SECRET)
    await send.options(delay="1h").enqueue(SECRET, n=1)
    await app.enqueue_many([send.bind(to=SECRET), send.bind(to=SECRET, n=2)])
    await app.groups.start([send.bind(to=SECRET)])
    await app.edit((await send.options(delay="1h").enqueue("ada")).id, params={"to": SECRET})

    texts = await stored(store)

    assert len(texts) == 6
    assert {label(text) for text in texts} == {"encrypted (key 2026-11)"}
    assert SECRET not in "".join(texts)
    assert send.load(texts[-1]) == {"to": SECRET}
    assert json.loads((await app.get(job.id)).params) == {"to": SECRET}


async def test_an_edit_replaces_encoded_params_by_encoded_ones(app, store, send):
    job = await send.options(delay="1h").enqueue("ada")

    edited = await job.edit(params={"to": SECRET})

    assert json.loads(edited.params) == {"to": SECRET}
    assert label((await stored(store))[0]) == "encrypted (key 2026-11)"


async def test_a_retried_job_has_the_same_envelope_and_is_readable(app, store, send, hand):
    job = await send.enqueue(to=SECRET)
    await hand.end(await hand.take("send"), Failed("", permanent=True))

    again = await app.retry(job.id)

    texts = await stored(store)
    assert texts[0] == texts[1]
    assert json.loads((await again.read()).params) == {"to": SECRET}


async def test_a_template_and_its_jobs_are_encoded(app, store, send):
    saved = await app.templates.save("weekly", send, params={"to": SECRET})
    await app.templates.enqueue("weekly", n=7)

    [document] = await store.documents("template")
    assert SECRET not in document.value
    assert json.loads(saved.params) == {"to": SECRET}
    assert json.loads((await app.templates.get("weekly")).params) == {"to": SECRET}
    [text] = await stored(store)
    assert send.load(text) == {"to": SECRET, "n": 7}


async def test_a_template_without_the_key_is_listed_and_not_enqueued(app, keyless, send):
    await app.templates.save("weekly", send, params={"to": SECRET})

    [listed] = await keyless.templates.list()

    assert label(listed.params) == "encrypted (key 2026-11)"
    with pytest.raises(PayloadUnreadable, match=r'params of "send".*key 2026-11.*has no codec'):
        await keyless.templates.enqueue("weekly")


RULE = {"coalesce": True, "misfire_grace": "1m"}


async def test_a_schedule_keeps_its_params_encoded_through_edits(app, store):
    await app.schedules.save("nightly", "0 2 * * *", "send", params={"to": SECRET}, **RULE)
    first = (await store.schedule("nightly")).plan.params

    renamed = await app.schedules.edit("nightly", job_name="night")
    changed = await app.schedules.edit("nightly", params={"to": "bob"})

    assert label(first) == "encrypted (key 2026-11)"
    assert json.loads(renamed.plan.params) == {"to": SECRET}
    assert json.loads(changed.plan.params) == {"to": "bob"}
    assert label((await store.schedule("nightly")).plan.params) == "encrypted (key 2026-11)"


async def test_a_slot_of_a_schedule_over_a_template_needs_no_key_until_it_runs(
    app, keyless, store, send
):
    await app.templates.save("weekly", send, params={"to": SECRET, "n": 1})
    await app.schedules.save("s", every="1h", template="weekly", params={"n": 7}, **RULE)

    await keyless.schedules.run("s", "next")  # as a trigger does it, which has no code

    [text] = await stored(store)
    assert label(text) == "encrypted (key 2026-11)"
    assert SECRET not in text
    assert send.load(text) == {"to": SECRET, "n": 7}
    [job] = [each async for each in app.jobs.find()]
    assert json.loads(job.params) == {"to": SECRET, "n": 7}


async def test_a_declaration_is_written_once_though_each_encryption_differs(app, store):
    app.schedule("nightly", "0 2 * * *", "send", params={"to": SECRET}, **RULE)
    await app.sync_schedules()
    first = await store.schedule("nightly")

    await app.sync_schedules()
    await app.schedules.edit("nightly", params={"to": "operator"})
    await app.sync_schedules()

    again = await app.schedules.get("nightly")
    assert json.loads(again.plan.params) == {"to": "operator"}
    assert again.version == first.version + 1
    assert label(first.plan.declared) == "encrypted (key 2026-11)"


async def test_a_changed_declaration_is_written(app, store):
    app.schedule("nightly", "0 2 * * *", "send", params={"to": "ada"}, **RULE)
    await app.sync_schedules()
    other = coded(store)
    other.schedule("nightly", "0 2 * * *", "send", params={"to": "bob"}, **RULE)

    await other.sync_schedules()

    assert json.loads((await app.schedules.get("nightly")).plan.params) == {"to": "bob"}


# What is read.


async def test_a_caller_with_the_key_reads_the_result(app, hand, send):
    job = await send.enqueue("ada")
    await finished(hand, app, job)

    assert await job.result("1s") == {"to": "ada"}
    [run] = await app.runs(job.id)
    assert (run.result, json.loads(run.params_snapshot)) == ('{"to":"ada"}', {"to": "ada"})


async def test_a_caller_without_the_key_is_told_which_one_it_needs(app, keyless, hand, send):
    job = await send.enqueue(SECRET)
    await finished(hand, app, job)

    with pytest.raises(PayloadUnreadable, match=r"result of .*key 2026-11.*codec=") as refused:
        await keyless.handle(job.id).result("1s")

    assert SECRET not in str(refused.value)
    for reader in (keyless, coded(app.store, OTHER, "other")):
        async with reader:
            assert label((await reader.get(job.id)).params) == "encrypted (key 2026-11)"
            [run] = await reader.runs(job.id)
            assert label(run.result) == "encrypted (key 2026-11)"
            assert label((await reader.lineage(job.id)).root.params) is not None
            found = await reader.get(job.id)
            for read in (lambda j=found: j.decoded_params, lambda r=run: r.decoded_result):
                with pytest.raises(PayloadUnreadable, match="key 2026-11"):
                    read()


async def test_another_key_of_the_codec_names_the_missing_one(app, store, hand, send):
    job = await send.enqueue("ada")
    await finished(hand, app, job)

    async with coded(store, OTHER, "2026-05") as other:
        with pytest.raises(PayloadUnreadable, match=r"key 2026-11.*has the keys 2026-05"):
            await other.handle(job.id).result("1s")


async def test_jobs_stored_before_the_codec_are_read(keyless, app, hand):
    job = await keyless.registry.get("send").enqueue("ada")
    await finished(hand, keyless, job)

    assert await app.handle(job.id).result("1s") == {"to": "ada"}
    assert type((await app.get(job.id)).params) is str


async def test_the_result_of_one_job_is_not_accepted_for_another(app, hand, send):
    one, other = await send.enqueue("ada"), await send.enqueue("bob")
    claims = [await hand.take("send"), await hand.take("send")]
    text = app.registry.envelopes.wrap('{"to":"ada"}', PayloadContext("result", one.id), what="r")
    for claim in claims:
        await hand.end(claim, Succeeded(text))

    assert await one.result("1s") == {"to": "ada"}
    with pytest.raises(PayloadUnreadable, match="belongs to another job"):
        await other.result("1s")


async def test_no_repr_and_no_error_shows_what_was_decoded(app, hand, send):
    failed, skipped = await send.enqueue(SECRET), await send.enqueue(SECRET)
    for handle, event in ((failed, Failed), (skipped, Skipped)):
        kind = "error" if event is Failed else "reason"
        wrapped = app.registry.envelopes.wrap(
            f"ValueError: {SECRET}", PayloadContext(kind, handle.id), what=kind
        )
        how = {"permanent": True} if event is Failed else {}
        await hand.end(await hand.take("send"), event(wrapped, **how))

    for handle in (failed, skipped):
        with pytest.raises(JobNotSucceeded) as refused:
            await handle.result("1s")
        job, runs = await handle.read(), await app.runs(handle.id)
        events, lineage = await app.events(handle.id), await app.lineage(handle.id)
        shown = [
            repr(refused.value),
            *map(repr, [job, runs, events, lineage, (await app.jobs.page()).jobs]),
        ]
        assert SECRET not in "".join(shown)
        assert SECRET in f"{runs[0].error} {job.reason}"
        assert "decoded characters" in repr(job)
    assert refused.value.error is None


# Look-alikes.


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")

    first: Any = Field(default=None, alias="$outlast")


@pytest.mark.parametrize("key", [KEY, None], ids=["encrypted", "plain"])
async def test_params_and_results_that_look_like_envelopes_are_values(store, hand, key):
    app = coded(store, key)
    seen = []

    class Handler:
        @classmethod
        def payload_model(cls) -> type[Anything]:
            return Anything

        async def handle(self, payload: Anything) -> None:
            seen.append(payload)

    forged = json.loads(encoded("aesgcm", EncodedPayload("x", "2026-11")))
    async with app:
        kind = app.job(Handler)
        job = await kind.enqueue(**forged)

        [text] = await stored(store)
        model = kind.load(text)["payload"]
        assert model.model_dump(by_alias=True) == forged
        assert label((await job.read()).params) is None
        returned = app.registry.get("send").dump_result({"$outlast": "encoded", "text": "x"})
        assert app.registry.load_result("send", returned) == {"$outlast": "encoded", "text": "x"}


def lenient(app):
    class Optional(BaseModel):
        limit: int = 10

    class Handler:
        @classmethod
        def payload_model(cls) -> type[Optional]:
            return Optional

        async def handle(self, payload: Optional) -> None: ...

    return app.job(name="lenient")(Handler)


async def test_a_handler_whose_params_are_all_optional_is_not_run_with_defaults(
    app, keyless, store
):
    await lenient(app).enqueue(limit=3)

    [text] = await stored(store)

    with pytest.raises(PayloadUnreadable, match="key 2026-11"):
        lenient(keyless).load(text)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.just("$outlast")
            | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("key", [KEY, None], ids=["encrypted", "plain"])
def test_any_params_and_result_make_the_round_trip(store, key):
    app = coded(store, key)

    @app.job
    async def echo(value: Any) -> Any:
        return value

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(values)
    def comes_back(value: Any) -> None:
        assert echo.load(echo.encode_params((value,), {})) == {"value": value}
        assert echo.load_result(echo.dump_result(value)) == value

    comes_back()


# Codecs that fail.


class CannotBeShown(Exception):
    def __str__(self) -> str:
        raise RuntimeError(SECRET)


@pytest.mark.parametrize(
    ("codec", "why"),
    [
        (Faulty(error=KeyError(SECRET)), "raised KeyError at test_api_codec.py:"),
        (Faulty(error=CannotBeShown(SECRET)), "raised CannotBeShown at"),
        (Faulty(answer=SECRET), "returned a str; return EncodedPayload"),
        (Faulty(answer=EncodedPayload(SECRET.encode())), "returned a bytes; return Encoded"),
        (Faulty(answer=EncodedPayload("\0" + SECRET)), "holds NUL"),
        (Faulty(answer=EncodedPayload("\ud800" + SECRET)), "lone surrogate"),
        (Faulty(answer=EncodedPayload("x", f"{SECRET} ö")), "no valid key"),
    ],
)
async def test_a_codec_that_fails_stores_nothing_and_shows_nothing(store, codec, why):
    async with Outlast(store, codec=codec) as app:

        @app.job
        async def send(to: str) -> None: ...

        with pytest.raises(CodecFailed, match=f'params of "send" cannot.*faulty.*{why}') as refused:
            await send.enqueue(SECRET)
        with pytest.raises(CodecFailed):
            await app.enqueue_many([send.bind(SECRET)])
        with pytest.raises(CodecFailed):
            await app.templates.save("t", send, params={"to": SECRET})
        with pytest.raises(CodecFailed):
            await app.schedules.save("s", "0 2 * * *", send, params={"to": SECRET}, **RULE)

        assert SECRET not in str(refused.value)
        assert refused.value.__cause__ is None  # it would quote the secret in a traceback
        assert refused.value.__context__ is None or refused.value.__suppress_context__
        assert await stored(store) == []
        assert await store.documents("template") == []
        assert await store.schedules(limit=10) == []


@pytest.mark.parametrize(
    ("codec", "why"),
    [
        (Faulty(error=KeyError(SECRET)), "codec faulty raised KeyError at"),
        (Faulty(answer=SECRET.encode()), "decoded a bytes; return text"),
    ],
)
async def test_a_codec_that_cannot_decode_is_named_without_its_message(store, codec, why):
    good = Outlast(store, codec=Faulty())
    bad = Outlast(store, codec=codec)
    text = good.registry.envelopes.wrap("{}", PayloadContext("params", "x"), what="params")

    with pytest.raises(PayloadUnreadable, match=why) as refused:
        bad.registry.envelopes.unwrap(text, PayloadContext("params", "x"), what="params")

    assert SECRET not in str(refused.value)
    assert bad.registry.envelopes.reveal_text(text, PayloadContext("params", "x")) == text


async def test_text_of_another_codec_is_refused_by_name(store):
    text = Envelopes(Faulty()).wrap("{}", PayloadContext("params", "x"), what="params")

    with pytest.raises(PayloadUnreadable, match="by codec faulty, and this app has codec aesgcm"):
        coded(store).registry.envelopes.unwrap(text, PayloadContext("params", "x"), what="params")


async def test_the_encoded_form_counts_against_the_limit(app, store, send):
    most = MAX_PAYLOAD * 3 // 4 - 200
    await send.enqueue("x" * most)

    with pytest.raises(PayloadTooLarge, match=r"bytes as codec aesgcm encodes it.*limit is 256 K"):
        await send.enqueue("x" * (most + 400))

    assert len(await stored(store)) == 1


@pytest.mark.parametrize("codec", [3, "aesgcm", AESGCMCodec, object()])
def test_what_is_no_codec_is_refused_at_once(codec):
    with pytest.raises(InvalidType, match=r"codec is a .*AESGCMCodec.from_environment"):
        Outlast("sqlite:///x.db", codec=codec)


def test_a_codec_needs_a_name_that_can_be_stored():
    codec = Faulty()
    codec.name = "no name"

    with pytest.raises(InvalidType, match="name of the codec"):
        Outlast("sqlite:///x.db", codec=codec)


# In tests of users.


@pytest.fixture
def outlast_app(store):
    app = coded(store)

    @app.job(retry=None)
    async def wait(to: str) -> Any:
        return Skip(f"nothing for {to}")

    return app


async def test_the_harness_shows_what_the_codec_hides(outlast):
    send, wait = outlast.app.registry.get("send"), outlast.app.registry.get("wait")
    await send.enqueue("ada", n=3)
    await wait.enqueue("bob")

    outlast.assert_enqueued(send, to="ada", n=3)
    with pytest.raises(AssertionError, match='"to":"ada"'):
        outlast.assert_enqueued(send, to="eve")
    drained = await outlast.drain()

    assert [ran.result for ran in drained] == [{"to": "ada"}, None]
    assert json.loads(drained[0].job.params) == {"to": "ada", "n": 3}
    assert drained[1].job.reason == "nothing for bob"
    assert '"to":"ada"' in str(drained[0])
    assert json.loads(outlast.jobs(send)[0].params) == {"to": "ada", "n": 3}
    assert await outlast.run(send, "eve") == {"to": "eve"}
    text = (await outlast.store.find(Filter(type="send"), limit=1))[0].params
    assert label(text) == "encrypted (key 2026-11)"


async def test_a_plain_text_is_text_like_any_other():
    text = PlainText('{"a":1}')

    assert json.loads(text) == {"a": 1}
    assert f"{text}" == '{"a":1}'
    assert text == '{"a":1}'
    assert repr(text) == "<7 decoded characters>"
