"""The tour: it ends well, leaves nothing behind, and the README shows what it says."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from outlast import Outlast
from outlast.demo.screen import Screen
from outlast.store.contract.jobs import Filter
from support.processes import COLUMNS, MARK, marked_processes, none_left, output_at_terminal

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
DEMO = [sys.executable, "-m", "outlast", "demo"]

pytestmark = pytest.mark.xdist_group("demo")  # one tour for most of them


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which the tour was kept, and what a terminal showed."""
    folder = tmp_path_factory.mktemp("tour") / ("a-long-name-" * 10)
    folder.mkdir()
    env = {**os.environ, "TMPDIR": str(folder)}
    code, shown = output_at_terminal([*DEMO, "--keep"], cwd=folder, env=env)
    assert code == 0, shown
    return folder, shown


@pytest.fixture(scope="module")
def tour(kept: tuple[Path, str]) -> str:
    return kept[1]


@pytest.mark.slow
def test_demo_says_what_it_has_checked(tour: str) -> None:
    assert "0 violations" in tour
    assert "refused" in tour
    assert "Every claim held" in tour


@pytest.mark.slow
async def test_the_takeover_time_of_the_demo_is_that_of_the_stored_runs(
    kept: tuple[Path, str],
) -> None:
    folder, shown = kept
    [said] = re.findall(r"restarted the job ([\d.]+) s after the kill", shown)
    [url] = re.findall(r"--url (\S+)", shown)

    async with Outlast(f"sqlite:///{folder / url.removeprefix('sqlite:///')}") as app:
        [job] = await app.store.find(Filter(type="long"), limit=2)
        lost, second = await app.runs(job.id)

    assert lost.finished_at is not None
    since_loss, since_start = (
        (second.started_at - before).total_seconds()
        for before in (lost.finished_at, lost.started_at)
    )
    assert since_loss - 0.01 <= float(said) <= since_start + 0.01


@pytest.mark.slow
def test_no_line_of_the_demo_is_wider_than_a_small_terminal(tour: str) -> None:
    assert [line for line in tour.splitlines() if len(line) > COLUMNS] == []


@pytest.mark.slow
def test_the_demo_prints_steps_and_claims_and_no_log_lines(tour: str) -> None:
    headings = re.findall(r"^(\d)  [A-Z]", tour, re.MULTILINE)

    assert headings == list("123456789")
    for line in tour.splitlines()[2:]:
        assert re.match(
            r"\d  [A-Z]|   ✓ |     |Every claim held|The store is kept|  outlast jobs|$", line
        ), line


@pytest.mark.slow
def test_readme_shows_what_the_demo_says(tour: str) -> None:
    said = {plain(line) for line in unwrapped(tour)}

    assert len(SHOWN) == 2
    for block in SHOWN:
        lines = [line for line in block.splitlines() if line and not line.startswith("$")]
        assert [line for line in lines if plain(line) not in said] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_demo_that_is_stopped_ends_its_workers_and_removes_its_files(
    number: signal.Signals, tmp_path: Path
) -> None:
    mark = str(uuid4())
    env = {**os.environ, "TMPDIR": str(tmp_path), MARK: mark, "PYTHONUNBUFFERED": "1"}
    demo = subprocess.Popen(
        DEMO, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert demo.stdout is not None
    assert any("workers are running" in line for line in demo.stdout)
    assert len(marked_processes(mark)) > 3

    demo.send_signal(number)
    _, errors = demo.communicate(timeout=240)

    assert demo.returncode == 128 + number
    assert "Traceback" not in errors
    assert none_left(mark)
    assert list(tmp_path.glob("outlast-demo-*")) == []


@pytest.mark.slow
def test_a_demo_whose_reader_is_gone_ends_its_workers_without_a_traceback(tmp_path: Path) -> None:
    mark = str(uuid4())
    env = {**os.environ, "TMPDIR": str(tmp_path), MARK: mark}
    demo = subprocess.Popen(
        DEMO, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert demo.stdout is not None
    demo.stdout.readline()
    demo.stdout.close()

    _, errors = demo.communicate(timeout=240)

    assert errors == ""
    assert none_left(mark)
    assert list(tmp_path.glob("outlast-demo-*")) == []


def test_a_long_line_of_the_demo_continues_below_its_last_column() -> None:
    lines: list[str] = []
    screen = Screen(lambda line, _: lines.append(line))

    screen.detail("  STOP paused       " + "word " * 30)
    screen.claim("word " * 30)

    assert all(len(line) <= COLUMNS for line in lines)
    assert {len(line) - len(line.lstrip()) for line in lines[1:3]} == {
        len("       STOP paused       ")
    }
    assert lines[-1].startswith("     word")


def unwrapped(text: str) -> list[str]:
    """The lines, each with what continues it."""
    return re.sub(r"\n {25,}", " ", text).splitlines()


def plain(line: str) -> str:
    """Without what differs each time: numbers, ids, ages, and which worker it was."""
    line = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f-]{27})?\b", "ID", line.strip())
    line = re.sub(r", \S+ old$", ", AGE", line)
    return re.sub(r"-?[\d,.:]*\d", "N", line)
