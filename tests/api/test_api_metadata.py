"""Headers, tags and meta from Python: given by type and by call, seen by runs, found by filters."""

import pytest

from outlast import InvalidArgument, InvalidJob, InvalidType, Outlast, Run
from outlast.core.delivery import Delivery
from outlast.core.ids import JobId, RunId
from outlast.core.run import Claim
from outlast.worker.executors.process_protocol import decode_task, encode_task

SEEN: list[tuple[object, ...]] = []


@pytest.fixture
def send(outlast):
    SEEN.clear()

    @outlast.app.job(tags=["mail"], headers={"from": "type"}, meta={"tenant": "none", "v": 1})
    def send(run: Run, number: int = 0) -> int:
        SEEN.append((run.tags, run.headers, run.meta))
        return number

    return send


@pytest.fixture
def plain(outlast):
    @outlast.app.job
    def plain(run: Run) -> None:
        SEEN.append((run.tags, run.headers, run.meta))

    return plain


async def test_a_job_has_the_metadata_of_its_type(send):
    job = await (await send.enqueue(1)).read()

    assert job.tags == ("mail",)
    assert job.headers == {"from": "type"}
    assert job.meta == {"tenant": "none", "v": 1}


async def test_a_call_adds_to_its_type_and_wins(send, outlast):
    call = send.options(
        tags=["urgent", "mail"], headers={"from": "call", "trace": "1"}, meta={"tenant": "acme"}
    )

    job = await (await call.enqueue(1)).read()
    other = await (await send.enqueue(2)).read()
    await outlast.drain()

    assert job.tags == ("mail", "urgent")
    assert job.headers == {"from": "call", "trace": "1"}
    assert job.meta == {"tenant": "acme", "v": 1}
    assert other.tags == ("mail",)
    assert [(job.tags, job.headers, job.meta), (other.tags, other.headers, other.meta)] == SEEN


async def test_without_metadata_a_job_stores_none_and_a_run_sees_none(plain, outlast):
    job = await (await plain.options(tags=[], headers={}, meta={}).enqueue()).read()
    await outlast.drain()

    assert job.metadata is None
    assert ((), {}, {}) in SEEN


async def test_many_jobs_keep_the_metadata_they_were_bound_with(send, outlast):
    bound = [send.options(tags=[f"t{n}"]).bind(n) for n in range(3)]

    handles = await outlast.app.enqueue_many(bound)

    assert [(await handle.read()).tags for handle in handles] == [
        ("mail", f"t{n}") for n in range(3)
    ]


async def test_a_job_of_a_template_has_the_metadata_of_its_type_and_of_the_call(send, outlast):
    await outlast.app.templates.save("weekly", send, params={"number": 3})
    weekly = outlast.app.templates.options("weekly", tags=["hand"], meta={"tenant": "acme"})

    job = await (await weekly.enqueue()).read()

    assert job.tags == ("mail", "hand")
    assert job.meta == {"tenant": "acme", "v": 1}


async def test_a_job_of_a_schedule_has_the_metadata_of_its_type(send, outlast):
    app = outlast.app
    await app.schedules.save("often", every="1m", job_type=send, coalesce=True, misfire_grace="1m")
    [handle] = [await app.schedules.run("often", slot="next")]

    assert (await handle.read()).tags == ("mail",)


async def test_a_retry_by_hand_has_the_metadata_of_its_job(outlast):
    @outlast.app.job(delivery="lease", tags=["t"], retry=["1s"], errors={ValueError: "permanent"})
    def broken() -> None:
        raise ValueError("no")

    handle = await broken.options(meta={"tenant": "acme"}).enqueue()
    await outlast.drain(raising=False)

    again = await outlast.app.retry(handle.id)

    assert ((await again.read()).tags, (await again.read()).meta) == (("t",), {"tenant": "acme"})


async def test_find_takes_tags_and_meta(send, outlast):
    one = await send.options(tags=["urgent"], meta={"tenant": "acme"}).enqueue(1)
    two = await send.options(meta={"tenant": "acme", "v": 2}).enqueue(2)

    async def found(**filters):
        return [job.id for job in await outlast.app.find(**filters)]

    assert await found(tags=["mail"]) == [two.id, one.id]
    assert await found(tags=["mail", "urgent"]) == [one.id]
    assert await found(meta={"tenant": "acme"}) == [two.id, one.id]
    assert await found(meta={"tenant": "acme", "v": 2}) == [two.id]
    assert await found(tags=["urgent"], meta={"v": 2}) == []


def test_a_handler_process_is_told_the_metadata():
    ids = JobId("00000000-0000-7000-8000-000000000001"), 1, RunId("r")
    claim = Claim(*ids, "send", "{}", Delivery.LEASE, 0, 0, 5, metadata='{"tags":["ü"]}')

    assert decode_task(encode_task(claim, "app"))[0] == claim


DEEP: object = 1
for _ in range(200):
    DEEP = [DEEP]

WRONG = {
    "17 tags": ({"tags": map(str, range(17))}, "17 tags; at most 16"),
    "long tag": ({"tags": ["x" * 65]}, "use text of 1 to 64 characters"),
    "empty tag": ({"tags": [""]}, "use text of 1 to 64 characters"),
    "NUL in a tag": ({"tags": ["\0"]}, "without NUL"),
    "surrogate in a tag": ({"tags": ["\ud800"]}, "without NUL and lone surrogates"),
    "tags as text": ({"tags": "urgent"}, 'give a list: \\["urgent"\\]'),
    "tag of another type": ({"tags": [3]}, "a tag is 3"),
    "tags as number": ({"tags": 3}, "tags is 3"),
    "33 headers": ({"headers": {str(n): "" for n in range(33)}}, "33 headers; at most 32"),
    "header that is no text": ({"headers": {"n": 3}}, r"header 'n' is 3; .*str\(value\)"),
    "header name that is no text": ({"headers": {3: "n"}}, "the name of a header is 3"),
    "headers as list": ({"headers": ["a"]}, "give a mapping"),
    "8 KiB": ({"headers": {"a": "x" * 8192}}, "at most 8,192 are kept with a job"),
    "33 names in meta": ({"meta": {f"n{n}": n for n in range(33)}}, "33 names; at most 32"),
    "meta as text": ({"meta": "tenant"}, "give a mapping"),
    "name in meta": ({"meta": {"a b": 1}}, "a name in meta is 'a b'"),
    "name in an object": ({"meta": {"a": {1: 2}}}, "names in JSON are text"),
    "NaN": ({"meta": {"a": float("nan")}}, "meta.a is nan; meta is JSON"),
    "infinite": ({"meta": {"a": [float("inf")]}}, r"meta.a\[0\] is inf"),
    "65 bits": ({"meta": {"a": 2**64}}, "numbers of at most 64 bits"),
    "not JSON": ({"meta": {"a": {1, 2}}}, "meta is JSON"),
    "too deep": ({"meta": {"a": DEEP}}, "meta.a is nested deeper than 100"),
    "NUL in meta": ({"meta": {"a": "\0"}}, "text without NUL"),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
async def test_metadata_that_no_job_can_have_is_refused_before_anything_is_stored(
    plain, outlast, given, message
):
    with pytest.raises(InvalidJob, match=message):
        await plain.options(**given).enqueue()

    assert await outlast.app.find() == []


async def test_what_type_and_call_have_together_is_limited(outlast):
    @outlast.app.job(tags=map(str, range(10)))
    def many() -> None: ...

    with pytest.raises(InvalidJob, match="there are 17 tags"):
        many.options(tags=map(str, range(5, 17)))


def test_metadata_of_a_type_is_checked_where_it_is_declared():
    app = Outlast("sqlite:///nowhere.db")

    with pytest.raises(InvalidType, match='job type "send": a tag is 3'):

        @app.job(tags=[3])
        def send() -> None: ...


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"tags": "urgent"}, "give a list"),
        ({"tags": [""]}, "a tag is ''"),
        ({"meta": ["tenant"]}, "give a mapping"),
        ({"meta": {"a b": 1}}, "a name in meta is"),
        ({"meta": {"a": [1]}}, "cannot be matched"),
        ({"meta": {"a": "x" * 257}}, "text of up to 256 characters"),
    ],
)
async def test_a_filter_that_no_job_can_match_is_refused(outlast, filters, message):
    with pytest.raises(InvalidArgument, match=message):
        await outlast.app.find(**filters)
