"""Type checkers see what we promise: right code passes, each kind of mistake is found."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import outlast

HERE = Path(__file__).parent
SOURCE = Path(outlast.__file__).parents[1]
RIGHT = HERE / "typing_api.py"
WRONG = HERE / "typing_errors.py"
MARKED = {
    number for number, line in enumerate(WRONG.read_text().splitlines(), 1) if "# mistake" in line
}


def mypy(file: Path, cache: Path) -> set[int]:
    """The lines mypy --strict complains about."""
    options = ["--strict", "--no-error-summary", "--config-file=", f"--cache-dir={cache}"]
    done = _run("mypy", *options, str(file))
    complaints = re.findall(r"^(.+?):(\d+): error: (.*)", done.stdout, re.MULTILINE)
    assert done.returncode == bool(complaints), done.stdout + done.stderr
    assert {Path(path).name for path, _, _ in complaints} <= {file.name}, done.stdout
    return {int(line) for _, line, _ in complaints}


def pyright(file: Path, cache: Path) -> set[int]:
    """The lines pyright's engine complains about, in its standard mode."""
    project = cache / "pyrightconfig.json"
    settings = {"include": [str(file)], "extraPaths": [str(SOURCE)], "typeCheckingMode": "standard"}
    project.write_text(json.dumps(settings))
    options = ["--outputjson", "--pythonpath", sys.executable, "--project", str(project)]
    done = _run("basedpyright", *options)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1, done.stdout
    found = [each for each in report["generalDiagnostics"] if each["severity"] == "error"]
    assert {Path(each["file"]).name for each in found} <= {file.name}, done.stdout
    return {each["range"]["start"]["line"] + 1 for each in found}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("types")


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_right_code_passes(checker: Callable[[Path, Path], set[int]], cache: Path) -> None:
    assert checker(RIGHT, cache) == set()


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_every_mistake_is_found_and_nothing_else(
    checker: Callable[[Path, Path], set[int]], cache: Path
) -> None:
    assert len(MARKED) > 15

    assert checker(WRONG, cache) == MARKED


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
