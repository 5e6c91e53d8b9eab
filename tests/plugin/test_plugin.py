"""The plugin in a user's project: found, quiet, quick, and nothing left for the next test."""

import tomllib
from pathlib import Path

import pytest

import outlast

SOURCE = Path(outlast.__file__).parents[1]

SHOP = """
from outlast import Outlast, Backoff

app = Outlast("sqlite:///real.db")

@app.job(retry=Backoff(3, base="1m"))
async def send_invoice(invoice_id: int, copy: bool = False) -> str:
    return f"sent {invoice_id}"

async def order(invoice_id: int) -> None:
    await send_invoice.options(delay="5m").enqueue(invoice_id)
"""

SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
outlast_app = shop:app
filterwarnings = error
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.delenv("OUTLAST_SIZE", raising=False)
    pytester.makepyfile(shop=SHOP)
    pytester.makefile(".ini", pytest=SETTINGS)
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """In a process of its own: a user's pytest shares nothing with ours."""
    return project.runpytest_subprocess(
        "-p", "pytest_outlast", "-p", "no:cacheprovider", *arguments, timeout=240
    )


def test_a_users_tests_pass_on_either_store_and_the_real_one_is_not_touched(
    project: pytest.Pytester,
) -> None:
    project.makepyfile("""
import shop

async def test_order(outlast):
    await shop.order(3)
    outlast.assert_enqueued(shop.send_invoice, invoice_id=3, within="5m", count=1)
    assert not await outlast.drain()
    outlast.advance("5m")
    assert [ran.result for ran in await outlast.drain(raising=True)] == ["sent 3"]

async def test_nothing_is_left_of_another_test(outlast, outlast_clock):
    assert outlast.jobs() == []
    assert outlast.now == outlast_clock.now()
    assert await outlast.run(shop.send_invoice, 7) == "sent 7"

def test_a_plain_function(outlast):
    outlast.complete(shop.order(4))
    assert len(outlast.complete(outlast.drain_until_idle())) == 1

async def test_an_app_that_is_closed_by_the_code_under_test(outlast):
    async with shop.app:
        await shop.order(5)
    outlast.assert_enqueued(shop.send_invoice, invoice_id=5)
    assert len(await outlast.drain_until_idle()) == 1

def test_the_app_is_its_own_again():
    assert shop.app.store.path.name == "real.db"
""")

    for store in ("sqlite", "model"):
        result = run(project, f"--outlast-store={store}")
        result.assert_outcomes(passed=5)
    assert not (project.path / "real.db").exists()


def test_a_failed_assertion_shows_the_line_and_what_was_enqueued(project: pytest.Pytester) -> None:
    project.makepyfile("""
import shop

async def test_order(outlast):
    await shop.order(3)
    outlast.assert_enqueued(shop.send_invoice, invoice_id=4)
""")

    result = run(project)

    result.assert_outcomes(failed=1)
    shown = result.stdout.str()
    failure = shown[shown.index("async def test_order") : shown.index("===", shown.index("E  "))]
    assert failure.rstrip().splitlines() == [
        "async def test_order(outlast):",
        "        await shop.order(3)",
        ">       outlast.assert_enqueued(shop.send_invoice, invoice_id=4)",
        'E       AssertionError: no job "send_invoice" with invoice_id=4 was enqueued',
        "E       ",
        "E       1 job was enqueued:",
        "E         type          params            queue    due in  state",
        'E         send_invoice  {"invoice_id":3}  default  5m      scheduled',
        "E       ",
        'E       nearest: {"invoice_id":3}',
        "E         invoice_id is 3, not 4",
        "",
        "test_a_failed_assertion_shows_the_line_and_what_was_enqueued.py:5: AssertionError",
    ]


@pytest.mark.slow
def test_a_fixture_of_the_users_own_says_which_app(project: pytest.Pytester) -> None:
    project.makefile(".ini", pytest="[pytest]\nasyncio_mode = auto\n")
    project.makeconftest("""
import pytest
from outlast import Outlast

@pytest.fixture
async def outlast_app():
    app = Outlast("sqlite:///mine.db")
    app.job(name="mine")(lambda: None)
    async with app:
        yield app
""")
    project.makepyfile("""
async def test_mine(outlast, outlast_app):
    await outlast_app.registry.get("mine").enqueue()
    assert len(await outlast.drain()) == 1
""")

    run(project).assert_outcomes(passed=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("", "*no app to test: set `outlast_app = myapp:app`*"),
        ("outlast_app = shop:ap", "*'shop:ap' does not exist; did you mean shop:app?*"),
        ("outlast_app = shop:app\noutlast_store = redis", "*outlast_store is 'redis'; use one*"),
    ],
    ids=["no app", "no such app", "no such store"],
)
def test_a_setting_that_cannot_be_is_told(
    project: pytest.Pytester, settings: str, words: str
) -> None:
    project.makefile(".ini", pytest=f"[pytest]\n{settings}\n")
    project.makepyfile("def test_it(outlast): ...")

    result = run(project)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([words])


@pytest.mark.slow
def test_it_costs_a_pytest_that_does_not_use_it_next_to_nothing(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(project, monkeypatch)
    project.makepyfile("""
import sys

def test_nothing_was_imported():
    heavy = {"outlast", "pydantic", "sqlite3", "asyncio", "hypothesis", "click"}
    assert "pytest_outlast" in sys.modules
    assert not heavy & set(sys.modules)
""")

    run(project).assert_outcomes(passed=1)


@pytest.mark.slow
def test_using_it_needs_neither_hypothesis_nor_another_plugin(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(project, monkeypatch)
    project.makepyfile("""
import sys
import shop

def test_order(outlast):
    outlast.complete(shop.order(3))
    outlast.assert_enqueued(shop.send_invoice)
    assert len(outlast.complete(outlast.drain_until_idle())) == 1
    assert not {"hypothesis", "pytest_asyncio"} & set(sys.modules)
""")

    run(project).assert_outcomes(passed=1)


def alone(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other plugin is there."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.makefile(".ini", pytest="[pytest]\noutlast_app = shop:app\nfilterwarnings = error\n")


def test_pytest_finds_it_by_the_name_of_its_module() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())
    built = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert project["project"]["entry-points"]["pytest11"] == {"pytest_outlast": "pytest_outlast"}
    assert "src/pytest_outlast.py" in built
    assert all((SOURCE.parent / each).exists() for each in built)
