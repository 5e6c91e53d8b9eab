"""The tool behind `make requirements`, on small made-up tables and on the real ones."""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "requirements.py"


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("outlast_requirements_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


tool = load_tool()

TABLE = """\
# S1: a small queue

## S1-1 Purpose

| ID | Requirement | Check | Waits for |
| --- | --- | --- | --- |
| S1-1.a | Nothing is lost. | Kill it. | |
| S1-1.b | Order holds. | Read it twice. | |
| S1-1.c | Restarts are safe. | = S1-1.a | |

## S1-2.1 Job

| ID | Requirement | Check | Waits for |
| --- | --- | --- | --- |
| S1-2.1.a | A template is kept. | Restart. | templates |
| S1-2.1.b | So is its copy. | = S1-2.1.a | |
| S1-2.1.c | The key is `a\\|b`. | Equal text. | |
"""


@dataclass
class Project:
    """A project folder with tables and tests, and what the tool says of it."""

    root: Path
    capsys: pytest.CaptureFixture[str]

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def table(self, *rows: str, name: str = "s1.md") -> None:
        head = "| ID | Requirement | Check | Waits for |\n| --- | --- | --- | --- |\n"
        self.write(f"docs/requirements/{name}", head + "\n".join(rows) + "\n")

    def tests(self, text: str, name: str = "test_s1_queue.py") -> None:
        self.write(f"tests/seeds/{name}", "import pytest\n" + text)

    def run(self, *argv: str) -> tuple[int, str, str]:
        code = tool.main([*argv, "--root", str(self.root)])
        out, err = self.capsys.readouterr()
        return code, out, err

    def states(self, *argv: str) -> dict[str, str]:
        _, out, _ = self.run("--json", *argv)
        return {row["id"]: row["state"] for row in json.loads(out)["requirements"]}


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Project:
    made = Project(tmp_path, capsys)
    made.write("docs/requirements/s1.md", TABLE)
    return made


def test_without_tests_rows_are_open_or_wait(project: Project) -> None:
    assert project.states() == {
        "S1-1.a": "not yet",
        "S1-1.b": "not yet",
        "S1-1.c": "not yet",
        "S1-2.1.a": "waiting",
        "S1-2.1.b": "waiting",
        "S1-2.1.c": "not yet",
    }


def test_a_marker_proves_its_ids_and_their_aliases(project: Project) -> None:
    project.tests('@pytest.mark.req("S1-1.a", "S1-1.b")\ndef test_it(): ...\n')

    code, out, err = project.run()

    assert (code, err) == (0, "")
    assert "proved   S1-1.a     tests/seeds/test_s1_queue.py::test_it" in out
    assert "proved   S1-1.b     tests/seeds/test_s1_queue.py::test_it" in out
    assert "proved   S1-1.c     (= S1-1.a) Restarts are safe." in out


REQ = 'pytest.mark.req("S1-1.a")'
CLASS = "class TestQueue:\n    {}\n    def test_a(self): ...\n    def helper(self): ...\n"


@pytest.mark.parametrize(
    ("source", "test"),
    [
        (f"@{REQ}\nasync def test_a(): ...\n", "test_a"),
        (f"@pytest.mark.slow\n@{REQ}\n@{REQ}\ndef test_a(): ...\n", "test_a"),
        (f"@{REQ}\n" + CLASS.format("size = 3"), "TestQueue::test_a"),
        (CLASS.format(f"pytestmark = {REQ}"), "TestQueue::test_a"),
        (f"pytestmark = {REQ}\ndef test_a(): ...\n", "test_a"),
        (f"pytestmark = [pytest.mark.slow, {REQ}]\ndef test_a(): ...\n", "test_a"),
        (f"pytestmark: list = [{REQ}]\ndef test_a(): ...\n", "test_a"),
    ],
)
def test_markers_are_found_wherever_they_stand(project: Project, source: str, test: str) -> None:
    project.tests(source, name="deep/test_s1_x.py")

    _, out, _ = project.run("--json")

    row = json.loads(out)["requirements"][0]
    assert row["tests"] == [f"tests/seeds/deep/test_s1_x.py::{test}"]


@pytest.mark.parametrize("mark", ["skip", 'skip(reason="later")', "xfail"])
def test_a_test_that_need_not_pass_proves_nothing(project: Project, mark: str) -> None:
    project.tests(f'@pytest.mark.{mark}\n@pytest.mark.req("S1-1.a")\ndef test_a(): ...\n')

    assert project.states()["S1-1.a"] == "not yet"


def test_no_test_is_imported(project: Project) -> None:
    project.tests('raise SystemExit(9)\n@pytest.mark.req("S1-1.a")\ndef test_a(): ...\n')

    assert project.states()["S1-1.a"] == "proved"


def test_an_unknown_id_fails_and_names_the_marker(project: Project) -> None:
    project.tests('\n@pytest.mark.req("S1-9.z")\ndef test_a(): ...\n')

    code, _, err = project.run()

    assert code == 1
    assert err == (
        "requirements: tests/seeds/test_s1_queue.py:3: S1-9.z is in no table; fix the marker\n"
    )


def test_a_module_marker_with_an_unknown_id_is_one_line(project: Project) -> None:
    project.tests('pytestmark = pytest.mark.req("S1-9.z")\ndef test_a(): ...\ndef test_b(): ...\n')

    code, _, err = project.run()

    assert (code, err.count("S1-9.z")) == (1, 1)


def test_an_id_that_is_not_written_out_fails(project: Project) -> None:
    project.tests("IDS = ()\n@pytest.mark.req(*IDS)\ndef test_a(): ...\n")

    code, _, err = project.run()

    assert code == 1
    assert "*IDS is in no table" in err


def test_an_id_listed_twice_fails_and_names_both_places(project: Project) -> None:
    project.table("| S1-1.a | Again. | Look. | |", name="s2.md")

    code, _, err = project.run()

    assert code == 1
    assert "docs/requirements/s2.md:3: S1-1.a is already at docs/requirements/s1.md:7" in err


@pytest.mark.parametrize(
    "row", ["| S1-1.a | No check. |", "| S1-1.a | | Look. | |", "| S1-1.a | A | B | | more |"]
)
def test_a_malformed_row_fails(project: Project, row: str) -> None:
    project.table(row)

    code, _, err = project.run()

    assert code == 1
    assert "docs/requirements/s1.md:3: a row is ID | Requirement | Check | Waits for" in err


def test_an_alias_of_nothing_fails(project: Project) -> None:
    project.table("| S1-1.a | Same. | = S1-1.z | |")

    code, _, err = project.run()

    assert code == 1
    assert "S1-1.a is an alias of S1-1.z, which is in no table" in err


def test_a_circle_of_aliases_fails_and_is_never_proved(project: Project) -> None:
    project.table(
        "| S1-1.a | One. | = S1-1.b | |",
        "| S1-1.b | Two. | = S1-1.a | |",
        "| S1-1.c | Leads in. | = S1-1.a | |",
    )

    code, out, err = project.run()

    assert code == 1
    assert err.count("leads back to itself") == 2
    assert "proved   0  not yet   3" in out


def test_a_chain_of_aliases_is_proved_by_its_end(project: Project) -> None:
    project.table(
        "| S1-1.a | One. | = S1-1.b | |",
        "| S1-1.b | Two. | = S1-1.c | |",
        "| S1-1.c | Three. | Look. | |",
    )
    project.tests('@pytest.mark.req("S1-1.c")\ndef test_a(): ...\n')

    assert set(project.states().values()) == {"proved"}


def test_an_alias_of_several_needs_them_all(project: Project) -> None:
    rows = ("| S1-1.a | One. | Look. | |", "| S1-1.b | Two. | Look. | schedules |")
    project.table(*rows, "| S1-1.c | Both. | = S1-1.a, S1-1.b | |")
    project.tests('@pytest.mark.req("S1-1.a")\ndef test_a(): ...\n')

    code, out, _ = project.run()

    assert code == 0
    assert "waiting  S1-1.c     [schedules] (= S1-1.a, S1-1.b) Both." in out


def test_a_proved_row_may_not_wait(project: Project) -> None:
    project.tests('@pytest.mark.req("S1-2.1.a")\ndef test_a(): ...\n')

    code, _, err = project.run()

    assert code == 1
    assert "S1-2.1.a is proved by tests/seeds/test_s1_queue.py::test_a; empty its Waits" in err


def test_an_alias_may_not_wait_by_itself(project: Project) -> None:
    project.table("| S1-1.a | One. | Look. | |", "| S1-1.b | Same. | = S1-1.a | schedules |")

    code, _, err = project.run()

    assert code == 1
    assert "S1-1.b is an alias and waits with its target" in err


def test_a_phrase_outside_the_vocabulary_fails(project: Project) -> None:
    project.table("| S1-1.a | One. | Look. | better days |")

    code, _, err = project.run()

    assert code == 1
    assert 'S1-1.a waits for "better days", which is none of: schedules, templates' in err


def test_a_file_that_is_not_python_fails_with_its_line(project: Project) -> None:
    project.tests("def broken(:\n")

    code, _, err = project.run()

    assert code == 1
    assert "tests/seeds/test_s1_queue.py:2:" in err


def test_options_narrow_the_report(project: Project) -> None:
    project.table("| S2-1.a | Typed. | Look. | |", "| S2-1.1.a | Below. | Look. | |", name="s2.md")

    assert list(project.states("--system", "S2")) == ["S2-1.a", "S2-1.1.a"]
    assert list(project.states("--section", "S2-1")) == ["S2-1.a", "S2-1.1.a"]
    assert list(project.states("--section", "S2-1.1")) == ["S2-1.1.a"]
    assert list(project.states("--section", "S1-2.1", "--open")) == ["S1-2.1.c"]


def test_an_unknown_section_fails(project: Project) -> None:
    code, _, err = project.run("--section", "S7-1")

    assert code == 1
    assert "no requirement is in that system and section" in err


def test_open_shows_only_todays_work_and_all_the_totals(project: Project) -> None:
    project.tests('@pytest.mark.req("S1-1.a")\ndef test_a(): ...\n')

    _, out, _ = project.run("--open")

    assert out == (
        "S1-1  Purpose\n"
        "  not yet  S1-1.b     Order holds.\n"
        "\n"
        "S1-2.1  Job\n"
        "  not yet  S1-2.1.c   The key is `a|b`.\n"
        "\n"
        "S1   proved   2  not yet   2  waiting   2  of   6  a small queue\n"
        "all  proved   2  not yet   2  waiting   2  of   6\n"
    )


def test_json_carries_totals_and_problems(project: Project) -> None:
    project.tests('@pytest.mark.req("S1-9.z")\ndef test_a(): ...\n')

    code, out, _ = project.run("--json")

    report = json.loads(out)
    assert code == 1
    assert report["totals"]["all"] == {"proved": 0, "not yet": 4, "waiting": 2}
    assert "S1-9.z" in report["problems"][0]


def test_the_real_tables_hold_every_id_under_a_heading() -> None:
    problems: list[str] = []

    titles, rows = tool.read_tables(ROOT, problems)

    assert problems + tool.wrong_tables(rows) == []
    assert Counter(row.system for row in rows.values()) == {
        "S0": 85, "S1": 202, "S2": 85, "S3": 70, "S4": 61,
    }  # fmt: skip
    assert {row.section for row in rows.values()} <= set(titles)


def test_the_real_report_fits_a_hundred_columns() -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL)], capture_output=True, text=True, encoding="utf-8", check=False
    )

    assert "Traceback" not in done.stderr
    long = [line for line in done.stdout.splitlines() if len(line) > tool.WIDTH]
    assert [line for line in long if "tests/seeds/" not in line] == []
