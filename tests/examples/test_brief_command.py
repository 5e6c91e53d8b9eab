"""The daily brief end to end: the command, its files and its output."""

import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import outlast as package
from daily_brief import job_runs, rules, show, units
from daily_brief.run import SAMPLE_MARK
from daily_brief.web import WebRunsNoJobs

EXAMPLE = Path(job_runs.__file__).parent
README = (EXAMPLE / "README.md").read_text()
FOUND_IN = os.pathsep.join([str(Path(package.__file__).parents[1]), str(EXAMPLE.parent)])


def query_rows(query: str, folder: Path) -> list[dict[str, Any]]:
    with redirect_stdout(StringIO()) as out:
        show.main([query, str(folder)])
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that the one command leaves behind, and what it printed."""
    folder = tmp_path_factory.mktemp("world")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "daily_brief.run"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": FOUND_IN},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "brief", done.stdout


@pytest.mark.slow
def test_the_one_command_makes_a_brief_of_every_feed_but_the_broken_one(
    world: tuple[Path, str],
) -> None:
    folder, said = world

    assert re.findall(r"^  (\w+) .* success +k2dailybrief-worker$", said, re.MULTILINE) == [
        "rss_ingestion",
        "event_clustering",
        "brief_publication",
        "retention_cleanup",
    ]
    assert "  3x  Storm Vesna floods Aldersund harbour" in said
    assert "Left out: The Silent Gazette (its server answers 500)" in said
    assert "Storm Vesna floods" in (folder / "brief.html").read_text()
    assert "Traceback" not in (folder / "worker.log").read_text()
    assert (folder / "web.log").read_text() == ""


@pytest.mark.slow
def test_show_answers_s0_s_questions_of_that_folder(world: tuple[Path, str]) -> None:
    folder, _ = world

    runs = query_rows("job_runs", folder)
    by_hand = [slot for slot in query_rows("slots", folder) if slot["outcome"] == "manual"]
    errors = {feed["name"]: feed["error"] for feed in query_rows("feeds", folder)}

    assert {row["job_name"] for row in runs} == set(rules.RULES)
    assert {slot["job_name"] for slot in by_hand} == set(rules.RULES)
    assert query_rows("running", folder) == []
    assert [name for name, error in errors.items() if error] == ["The Silent Gazette"]
    assert (folder / "brief.toml").read_text().startswith(SAMPLE_MARK)


def test_the_readme_s_words_are_those_of_the_code() -> None:
    for status in ("running", "success", "failed", "skipped_timeout"):
        assert f"| `{status}` |" in README
    for name in rules.RULES:
        assert f"`{name}`" in README
    for query in show.QUERIES:
        assert re.search(rf"\b{query}\b", README)
    assert f"raises `{WebRunsNoJobs.__name__}`" in README
    assert f"`{units.WEB}`" in README
    assert f"`{units.WORKER}`" in README
    assert job_runs.STARTUP_RECOVERY in README


def test_every_file_of_the_example_is_in_its_readme() -> None:
    files = {
        path.name for path in EXAMPLE.iterdir() if path.suffix in {".py", ".sql", ".toml", ".css"}
    }

    assert {name for name in files - {"__init__.py"} if f"`{name}`" not in README} == set()
