"""The operating system proves a process dead, or nothing is proved."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outlast import process_identity
from outlast.process_identity import ProcessMark, process_name, process_scope, proved_dead
from support.dead_process import dead_process_name

PATIENCE = 120.0
MAKES_A_NAME = """
from outlast.process_identity import process_name
print(process_name("caller.", "1"), flush=True)
input()
"""
LEAVES_A_CHILD = """
import subprocess, sys
from outlast.process_identity import ProcessMark
mark = ProcessMark("tree.", "1")
child = subprocess.Popen(["sleep", "60"], pass_fds=[mark.fileno()], stdout=-3, stderr=-3)
print(mark.name, child.pid, flush=True)
"""
FORKS = """
import os, subprocess, sys, time
from outlast.process_identity import ProcessMark
mark = ProcessMark("tree.", "1")
child = (
    "import os, sys, time; from outlast.process_identity import keep_mark; "
    "keep_mark(int(sys.argv[1])); print(os.fork() or time.sleep(60), flush=True); time.sleep(60)"
)
words = [sys.executable, "-c", child, str(mark.fileno())]
forking = subprocess.Popen(words, pass_fds=[mark.fileno()], stdout=-1, stderr=-3, text=True)
print(mark.name, forking.pid, forking.stdout.readline().strip(), flush=True)
"""


def test_a_process_is_proved_dead_by_its_end_and_not_before():
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES_A_NAME],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    name = process.stdout.readline().strip()
    while_it_lives = proved_dead([name])
    process.kill()
    until(lambda: is_zombie(process.pid))
    before_its_parent_waits = proved_dead([name])
    process.communicate()

    assert while_it_lives == frozenset()
    assert before_its_parent_waits == proved_dead([name]) == {name}


def test_a_later_process_of_the_same_pid_proves_the_earlier_one_dead():
    own = process_name("caller.", "1")
    prefix, scope, pid, start, unique = own.split(".")
    earlier = ".".join((prefix, scope, pid, str(int(start) - 1), unique))

    assert proved_dead([own, earlier]) == {earlier}


@pytest.mark.parametrize("kind", ["boot", "pid", "net", "time"])
def test_of_another_machine_or_container_nothing_is_proved(monkeypatch, kind):
    dead = dead_process_name("caller.")
    if kind == "boot":
        monkeypatch.setattr(process_identity.SystemClock, "boot_id", lambda _: "another")
    else:
        real = process_identity._namespace
        monkeypatch.setattr(
            process_identity, "_namespace", lambda each: "else" if each == kind else real(each)
        )

    assert proved_dead([dead]) == frozenset()


def test_where_the_system_tells_no_namespace_nothing_is_proved(monkeypatch):
    def hidden(_: Path) -> Path:
        raise PermissionError

    monkeypatch.setattr(Path, "readlink", hidden)
    dead = dead_process_name("caller.")

    assert process_scope() == process_identity.UNKNOWN_SCOPE
    assert proved_dead([dead, process_name("caller.", "1")]) == frozenset()


def test_a_process_hidden_from_this_user_is_not_proved_dead(monkeypatch):
    def hidden(_: int) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(process_identity._ProcessStatus, "read", hidden)

    assert proved_dead([f"caller.{process_scope()}.{os.getppid()}.1.1"]) == frozenset()


@pytest.mark.parametrize(
    "name", ["tree.1", "caller.alive", "tree.{scope}.0.1.1", "tree.{scope}.99999999999.1.1", ""]
)
def test_a_name_that_does_not_say_its_process_proves_nothing(name):
    assert proved_dead([name.format(scope=process_scope())]) == frozenset()


def test_a_supervisor_with_a_living_child_is_not_proved_dead():
    made = subprocess.run(
        [sys.executable, "-c", LEAVES_A_CHILD], capture_output=True, text=True, check=True
    )
    name, child = made.stdout.split()
    with_its_child = proved_dead([name])
    os.kill(int(child), 9)
    until(lambda: proved_dead([name]))

    assert with_its_child == frozenset()


def test_a_process_that_a_handler_forked_keeps_no_mark():
    made = subprocess.run([sys.executable, "-c", FORKS], stdout=-1, text=True, check=True)
    name, child, fork = made.stdout.split()
    with_its_child = proved_dead([name])
    os.kill(int(child), 9)
    until(lambda: proved_dead([name]))
    os.kill(int(fork), 9)  # it was alive

    assert with_its_child == frozenset()


def test_a_mark_that_cannot_be_made_leaves_a_name_of_which_nothing_is_proved(monkeypatch):
    monkeypatch.setattr(process_identity, "_address", lambda _: "\0" + "x" * 200)

    mark = ProcessMark("tree.", "unique")

    assert mark.name == "tree.unique"
    mark.close()


def is_zombie(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def until(is_so):
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)
