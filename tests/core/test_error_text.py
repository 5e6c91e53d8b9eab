"""A stored traceback begins at the user's frame, through every cause and every executor."""

import traceback
from pathlib import Path

import pytest

import outlast
from outlast.core.error_text import error_text

WORKER = str(Path(outlast.__file__).parent / "worker" / "attempt_runner.py")
LIBRARY = str(Path(traceback.__file__).parent / "asyncio" / "runners.py")


def caught(handler: str, *callers: str) -> BaseException:
    """The error of a handler that code of these files called."""
    names: dict[str, object] = {}
    exec(compile(handler, "/home/me/jobs.py", "exec"), names)  # noqa: S102 - the test's own text
    for caller in reversed(callers):
        call = compile("def call():\n    return inner()", caller, "exec")
        names = {"inner": names["call"]}
        exec(call, names)  # noqa: S102 - the test's own text
    try:
        names["call"]()  # type: ignore[operator]
    except BaseException as error:  # noqa: BLE001 - the error is what is wanted
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        return error
    raise AssertionError


def files(text: str) -> list[str]:
    return [
        line.split('"')[1] for line in text.splitlines() if line.lstrip(" |").startswith("File")
    ]


def test_a_traceback_begins_at_the_users_frame() -> None:
    error = caught("def call():\n    int('x')", WORKER, LIBRARY, WORKER)

    text = error_text(error)

    assert files(text) == ["/home/me/jobs.py"]
    assert text.endswith("ValueError: invalid literal for int() with base 10: 'x'\n")


@pytest.mark.parametrize("clause", ["from error", ""])
def test_the_chain_of_causes_is_whole(clause: str) -> None:
    handler = (
        "def call():\n    try:\n        {}['a']\n    except KeyError as error:\n"
        f"        raise OSError('no a') {clause}"
    )

    text = error_text(caught(handler, WORKER))

    assert files(text) == ["/home/me/jobs.py", "/home/me/jobs.py"]
    assert text.index("KeyError: 'a'") < text.index("OSError: no a")


def test_each_error_of_a_group_begins_at_the_users_frame() -> None:
    handler = (
        "def call():\n    try:\n        {}['a']\n    except KeyError as error:\n"
        "        raise ExceptionGroup('two', [error, OSError('b')])"
    )

    text = error_text(caught(handler, WORKER))

    assert set(files(text)) == {"/home/me/jobs.py"}
    assert "ExceptionGroup: two (2 sub-exceptions)" in text


def test_an_error_before_the_handler_keeps_its_frames() -> None:
    error = caught("def call():\n    int('x')", WORKER)
    error.__traceback__ = error.__traceback__ and _only(error.__traceback__)

    assert files(error_text(error)) == [WORKER]


def _only(first):  # type: ignore[no-untyped-def]
    return type(first)(None, first.tb_frame, first.tb_lasti, first.tb_lineno)


def test_an_error_that_cannot_be_written_is_named() -> None:
    class Faulty(Exception):
        @property
        def __notes__(self) -> list[str]:
            raise RuntimeError

        def __str__(self) -> str:
            raise RuntimeError

    assert "Faulty" in error_text(Faulty())


def test_a_long_chain_of_causes_is_written() -> None:
    error: BaseException = OSError("first")
    for number in range(2_000):
        error, before = OSError(str(number)), error
        error.__cause__ = before

    assert "OSError: first" in error_text(error)
