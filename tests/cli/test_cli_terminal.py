"""At a real terminal: one Ctrl-C is enough, and nothing that one must copy is cut."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
from collections.abc import Sequence

import pytest

from outlast.cli.dev import _modification_times

from .conftest import APP, Cli

CTRL_C = b"\x03"
NARROW = 80
SILENCE_TIMEOUT_S = 120
"""Seconds of silence after which a command counts as stuck."""

SLOW = """

@app.job
async def slow() -> str:
    import asyncio
    from pathlib import Path
    print("begun", flush=True)
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "whole"
"""


class Terminal:
    """The command as a person sees it."""

    def __init__(self, *args: str, env: dict[str, str] | None = None) -> None:
        pid, self._fd = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, NARROW, 0, 0))
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent process may ignore it
            os.environ.pop("NO_COLOR", None)
            os.environ.pop("COLUMNS", None)
            os.environ.update({"OUTLAST_APP": "tasks:app", "TERM": "xterm", **(env or {})})
            os.execv(sys.executable, [sys.executable, "-m", "outlast", *args])  # noqa: S606 - ours
        self._pid = pid
        self.text = ""

    def until(self, words: str) -> None:
        """Read on until it says that."""
        while words not in self.text:
            if not self._read():
                pytest.fail(f"it ended without {words!r}: {self.text}")

    def press(self, key: bytes) -> None:
        os.write(self._fd, key)

    def end(self) -> int:
        """Its exit code."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], SILENCE_TIMEOUT_S)[0]:
            os.kill(self._pid, 9)
            pytest.fail(f"it says nothing more: {self.text}")
        try:
            new = os.read(self._fd, 65536)
        except OSError:  # Linux reports a closed terminal so
            return False
        self.text += new.decode(errors="replace")
        return bool(new)


def add(cli: Cli, numbers: Sequence[int]) -> list[str]:
    return [cli.enqueue("add", f'{{"left": {n}}}') for n in numbers]


def test_one_ctrl_c_leaves_a_question(cli: Cli) -> None:
    add(cli, [1])
    asked = Terminal("cancel", "type:add")
    asked.until("[y/N]")

    asked.press(CTRL_C)

    assert asked.end() == 130
    assert len(cli.documents("jobs", "state:queued")) == 1


def test_ctrl_c_ends_a_wait_with_one_line(cli: Cli) -> None:
    waits = Terminal("enqueue", "add", '{"left": 1}', "--wait")
    waits.until("-")  # the id

    waits.press(CTRL_C)

    assert waits.end() == 130
    assert "Traceback" not in waits.text
    assert len(cli.documents("jobs", "state:queued")) == 1


def test_a_narrow_terminal_shows_whole_ids(cli: Cli) -> None:
    ids = add(cli, [1, 2])
    listed = Terminal("jobs")

    assert listed.end() == 0
    for job_id in ids:
        assert job_id in listed.text


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}], ids=["colour", "no colour"])
def test_top_shows_at_once_and_ctrl_c_leaves_it(cli: Cli, env: dict[str, str]) -> None:
    add(cli, [1])
    top = Terminal("top", env=env)
    top.until("RUNNING")

    top.press(CTRL_C)

    assert top.end() == 0
    assert "Traceback" not in top.text


def test_ctrl_c_lets_the_job_in_hand_of_dev_end(cli: Cli) -> None:
    (cli.folder / "tasks.py").write_text(APP + SLOW)
    cli.enqueue("slow")
    dev = Terminal("dev")
    dev.until("begun")

    dev.press(CTRL_C)
    dev.until("^C")
    (cli.folder / "go").touch()

    assert dev.end() == 0
    assert [job["type"] for job in cli.documents("jobs", "state:succeeded")] == ["slow"]


def test_dev_walks_past_environments_but_not_because_of_where_it_stands(cli: Cli) -> None:
    here = cli.folder / "venv" / "project"
    (here / ".venv" / "lib").mkdir(parents=True)
    for file in (here / "jobs.py", here / ".venv" / "lib" / "theirs.py"):
        file.touch()

    assert set(_modification_times(here)) == {here / "jobs.py"}
