"""The tour: it ends well, leaves nothing behind, and the README shows what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```text\n(.*?)```", README, re.DOTALL)


pytestmark = pytest.mark.xdist_group("demo")  # one tour for both


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tour")
    done = subprocess.run(
        [sys.executable, "-m", "outlast", "demo", "--script"],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(folder.glob("tmp*")) == []
    return done.stdout


@pytest.mark.slow
def test_demo_says_what_it_has_checked_and_leaves_nothing(tour: str) -> None:
    assert "0 violations" in tour
    assert "refused" in tour


@pytest.mark.slow
def test_readme_shows_what_the_demo_says(tour: str) -> None:
    said = {plain(line) for line in tour.splitlines()}

    assert len(SHOWN) == 2
    for block in SHOWN:
        lines = [line for line in block.splitlines() if line and not line.startswith("$")]
        assert [line for line in lines if plain(line) not in said] == []


def plain(line: str) -> str:
    """Without what differs each time: numbers, ids, ages, and which worker it was."""
    line = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", line.strip())
    line = re.sub(r", \S+ old$", ", AGE", line)
    return re.sub(r"-?[\d,.:]*\d", "N", line)
