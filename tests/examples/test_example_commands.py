"""The examples as a person runs them: calm output, and an end that leaves no process behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

import outlast as package
from support.processes import MARK, marked_processes, none_left

EXAMPLES = Path(__file__).parents[2] / "examples"
FOUND_IN = os.pathsep.join([str(Path(package.__file__).parents[1]), str(EXAMPLES)])
MIDDLE = {
    "story_studio": "One worker, one job at a time",
    "daily_brief": "Worker and web go on",
    "companion": "The users are synced first",
}
"""What each prints while its worker runs."""

# A signal in the middle of an import leaves the file that Python reads to the garbage collector.
WARNINGS = ("-W", "error", "-W", "ignore:unclosed file:ResourceWarning")
OPTIONS = {"daily_brief": ("--stay",), "companion": ("--minute", "5")}
STOPS = [
    *((name, signal.SIGTERM, 128 + signal.SIGTERM) for name in MIDDLE),
    ("companion", signal.SIGINT, 128 + signal.SIGINT),
    ("daily_brief", signal.SIGINT, 0),  # --stay says that Ctrl-C ends it
]


class Example:
    """A running example whose processes are marked."""

    def __init__(self, name: str, folder: Path, *options: str, command: str = "run") -> None:
        self.mark = str(uuid4())
        self._process = subprocess.Popen(
            [sys.executable, *WARNINGS, "-m", f"{name}.{command}", *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": FOUND_IN, MARK: self.mark, "SENTRY_DSN": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, words: str) -> None:
        assert self._process.stdout is not None
        assert any(words in line for line in self._process.stdout), self.end()

    def stop(self, number: signal.Signals) -> tuple[int, str]:
        self._process.send_signal(number)
        return self.end()

    def end(self) -> tuple[int, str]:
        """Its exit code and what it wrote to stderr."""
        _, errors = self._process.communicate(timeout=250)
        return self._process.returncode, errors

    def close_output(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number", "code"), STOPS)
def test_an_example_that_is_stopped_ends_everything_it_started(
    name: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    example = Example(name, tmp_path, *OPTIONS.get(name, ()))
    example.until(MIDDLE[name])

    assert example.stop(number) == (code, "")

    assert none_left(example.mark), marked_processes(example.mark)


@pytest.mark.slow
@pytest.mark.parametrize("name", MIDDLE)
def test_an_example_whose_reader_is_gone_ends_in_silence(name: str, tmp_path: Path) -> None:
    example = Example(name, tmp_path)
    example.close_output()

    assert example.end() == (0, "")

    assert none_left(example.mark), marked_processes(example.mark)
