"""Every block of the how-to pages that names its file is that file, and what they show is true."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "test-your-jobs.md").read_text()
FILES = dict(re.findall(r"```(?:python|ini)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
WRONG = "test_wrong.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run_pytest(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["-m", "pytest", "-p", "pytest_outlast", "-p", "no:cacheprovider", "-W", "error"]
    return subprocess.run(
        [sys.executable, *command, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_every_block_is_a_file_of_the_project() -> None:
    blocks = re.findall(r"```(?:python|ini)\n", PAGE)

    assert len(blocks) == len(FILES) >= 6


@pytest.mark.slow
def test_every_test_on_the_page_passes(project: Path) -> None:
    done = run_pytest(project, f"--ignore={WRONG}")

    assert done.returncode == 0, done.stdout
    tests = sum(len(re.findall(r"def test_", FILES[name])) for name in FILES.keys() - {WRONG})
    assert f" {tests} passed" in done.stdout
    assert not list(project.glob("*.db"))


@pytest.mark.slow
def test_the_failure_reads_as_shown(project: Path) -> None:
    done = run_pytest(project, WRONG)

    reported = "\n".join(re.findall(r"^E {7}(.*)$", done.stdout, re.MULTILINE))
    assert [reported] == [text.rstrip("\n") for text in SHOWN]
