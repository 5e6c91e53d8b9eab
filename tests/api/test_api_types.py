"""What may be registered as a job type, and what is refused with a reason."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from outlast import Backoff, InvalidType, Run, Snooze, TypeNotFound
from outlast.core.classify import ErrorClass
from outlast.core.delivery import Delivery


async def test_a_plain_decorator_gives_the_defaults(app):
    @app.job
    async def send(number: int) -> None: ...

    assert (send.name, send.queue, send.priority) == ("send", "default", 0)
    assert send.delivery is Delivery.LEASE
    assert send.retry == Backoff(5, base="1s", cap="1h")
    assert (send.executor, send.takes_run, send.max_runtime) == ("async", False, None)


async def test_settings_of_a_type_are_kept(app):
    @app.job(
        name="mail.send",
        delivery="linked",
        retry=Backoff(3),
        queue="mail",
        priority=-5,
        max_runtime="10m",
        errors={KeyError: "permanent"},
        unknown_error="permanent",
    )
    def send(run: Run) -> None: ...

    assert app.registry.get("mail.send") is send
    assert (send.queue, send.priority, send.retry.max_attempts) == ("mail", -5, 3)
    assert send.max_runtime == timedelta(minutes=10)
    assert (send.executor, send.takes_run) == ("thread", True)
    assert send.classifier.errors == {KeyError: ErrorClass.PERMANENT}
    assert send.classifier.unknown is ErrorClass.PERMANENT


async def test_calling_a_type_runs_the_plain_function(app):
    @app.job
    async def double(number: int) -> int:
        return 2 * number

    @app.job
    def half(number: int) -> float:
        """Half of it."""
        return number / 2

    assert await double(4) == 8
    assert half(4) == 2
    assert half.__doc__ == "Half of it."


async def test_string_annotations_are_read(app):
    def late(run: "Run", number: "int", names: "list[str]" = []) -> "int | Snooze":  # noqa: B006
        return number

    job_type = app.job(late)

    assert job_type.takes_run
    assert job_type.load('{"number": "3"}') == {"number": 3}
    assert job_type.load_result("7") == 7


async def test_a_run_imported_for_type_checkers_only_is_found(app):
    space: dict[str, Any] = {}
    code = "from __future__ import annotations\ndef send(run: Run, number: int) -> None: ..."
    exec(code, space)  # noqa: S102 - a module that never imported Run

    assert app.job(space["send"]).takes_run


async def test_names_that_a_model_would_keep_for_itself_are_fine(app):
    @app.job
    def odd(json: int, copy: str, model_config: int, _hidden: int = 1) -> None: ...

    params = {"json": 1, "copy": "x", "model_config": 2, "_hidden": 3}

    assert odd.load(odd.bind(**params)._params) == params


async def test_an_argument_left_out_stays_out(app):
    @app.job
    def send(number: int, flag: object = app) -> None: ...

    assert send.bind(1)._params == '{"number":1}'
    assert send.load('{"number":1}') == {"number": 1}


def splat(*numbers: int) -> None: ...
def named(**numbers: int) -> None: ...
def first(number: int, /) -> None: ...
def later(number: int, run: Run) -> None: ...
def unknown(number: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def foreign(other: "partial[int]") -> None: ...
def result() -> "partial[int]": ...  # type: ignore[empty-body]
def yields() -> Iterator[int]:
    yield 1


async def streams() -> AsyncIterator[int]:
    yield 1


SIGNATURES = {
    splat: 'parameter "numbers" of job type "splat" takes any number',
    named: 'parameter "numbers" of job type "named" takes any name',
    first: 'parameter "number" of job type "first" is positional-only',
    later: 'parameter "run" of job type "later" is the Run; it comes first',
    unknown: 'job type "unknown" has an annotation that cannot be read here.*Missing',
    foreign: 'params of "foreign" cannot be stored: .*partial.*use types Pydantic knows',
    result: 'result of "result" cannot be stored',
    yields: 'job type "yields" yields; a handler returns one value',
    streams: 'job type "streams" yields',
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__name__)
async def test_a_signature_that_cannot_work_is_refused(app, function):
    with pytest.raises(InvalidType, match=SIGNATURES[function]):
        app.job(function)

    assert app.registry.names() == []


SETTINGS = [
    ({"name": "no spaces"}, "the name of a job type is 'no spaces'; use 1 to 128"),
    ({"name": ""}, "the name of a job type is ''"),
    ({"name": "ä"}, "name of a job type"),
    ({"name": "x" * 129}, "name of a job type"),
    ({"name": "x\n"}, "name of a job type"),
    ({"name": 7}, "name of a job type"),
    ({"delivery": "broadcast"}, "broadcast is reserved until the cluster exists; use one of lease"),
    ({"delivery": "new"}, "delivery is 'new'; use one of lease, linked, once"),
    ({"delivery": None}, "delivery is None"),
    ({"delivery": "once", "retry": Backoff(3)}, "once never runs again, so retry contradicts it"),
    ({"retry": 3}, r"retry is 3; use Backoff\(max_attempts=5\), a list"),
    ({"queue": "a b"}, 'job type "send": queue is .a b.'),
    ({"priority": 40_000}, 'job type "send": priority is 40000; it must lie in'),
    ({"priority": 1.5}, "priority is 1.5; use a whole number"),
    ({"max_runtime": "0s"}, "max_runtime is zero"),
    ({"max_runtime": "-1s"}, "max_runtime is '-1s'; write a timedelta or text such as"),
    ({"max_runtime": timedelta(days=-1)}, "max_runtime is -1 day"),
    ({"max_runtime": 10}, "max_runtime is 10"),
    ({"errors": {"KeyError": "permanent"}}, "errors names 'KeyError'; use exception classes"),
    ({"errors": {KeyError: "never"}}, r"errors\[KeyError\] is 'never'; use transient or permanent"),
    ({"unknown_error": "maybe"}, "unknown_error is 'maybe'; use transient or permanent"),
]


@pytest.mark.parametrize(("settings", "words"), SETTINGS, ids=lambda value: str(value)[:40])
async def test_settings_that_cannot_be_are_refused(app, settings, words):
    def send() -> None: ...

    with pytest.raises(InvalidType, match=words):
        app.job(**settings)(send)

    assert app.registry.names() == []


async def test_only_functions_can_be_decorated(app):
    with pytest.raises(InvalidType, match="decorate a function"):
        app.job(name="part")(partial(print, 1))


async def test_a_name_is_registered_once(app):
    app.job(name="send")(lambda: None)

    with pytest.raises(
        InvalidType, match=r'"send" is registered already, by .*; give one of them a `name='
    ):
        app.job(name="send")(lambda: None)


async def test_an_unknown_type_is_told_with_the_known_ones(app):
    app.job(name="send")(lambda: None)
    app.job(name="fetch")(lambda: None)

    with pytest.raises(TypeNotFound, match=r"type 'fetch_feed' is not registered; .*mean fetch\?"):
        app.registry.get("fetch_feed")
    with pytest.raises(TypeNotFound, match="type 'zzz' is not registered; known: fetch, send"):
        app.registry.get("zzz")


async def test_a_direct_call_without_its_run_says_how_to_call_it(app):
    @app.job
    async def send(run: Run, number: int) -> int:
        return number

    with pytest.raises(TypeError, match=r"missing .*'number'.*`await outlast\.run\(send, …\)`"):
        send(3)
    assert await send(None, 3) == 3
