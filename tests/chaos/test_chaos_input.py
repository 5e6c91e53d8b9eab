"""What cannot work is refused in one clear line, with the exit code that the help names."""

import sqlite3
from contextlib import closing

import pytest

from .worker_tree import PROGRAM, until

pytestmark = pytest.mark.slow

WRONG, TAKEN = 2, 3


def only_line(tree):
    lines = [line for line in tree.log.splitlines() if " INFO " not in line]
    assert len(lines) == 1, tree.log
    return lines[0]


@pytest.mark.parametrize(
    ("app", "says"),
    [
        ("chaos.no_such_module:app", "cannot import 'chaos.no_such_module'"),
        ("chaos.broken_app:app", "not_a_name"),
        ("chaos.broken_app", "cannot import 'chaos.broken_app'"),
        ("chaos.notes:app", "does not exist; apps in that module: none"),
        ("chaos.empty_app:app", "nothing to serve"),
    ],
)
def test_app_that_cannot_be_worked_for_is_named_in_one_line(grow, app, says):
    tree = grow(app=app)

    assert tree.wait() == WRONG
    assert says in only_line(tree)


def test_second_worker_of_one_instance_id_is_refused(grow, ledger):
    first = grow("--instance-id", "alpha").ready()

    second = grow("--instance-id", "alpha")

    assert second.wait() == TAKEN
    assert "'alpha' is running already" in only_line(second)
    assert first.code is None


def test_second_worker_of_a_single_scope_is_refused_until_the_first_is_killed(grow, ledger):
    first = grow("--topology", "single").ready()

    second = grow("--topology", "single")
    elsewhere = grow("--topology", "single", "--scope", "other").ready()

    assert second.wait() == TAKEN
    assert "topology single serves the scope 'default' already" in only_line(second)
    first.kill()
    third = grow("--topology", "single").ready()
    assert (third.code, elsewhere.code) == (None, None)


def test_queue_that_no_type_uses_is_warned_of_once(grow, ledger):
    tree = grow("-q", "default,no-such-queue").ready()

    [job] = ledger.enqueue(("brief", {"n": 0, "seconds": 0}))
    until(lambda: ledger.state(job) == "succeeded", what="a job of the queue that there is")

    assert len(tree.lines("WARNING", "no-such-queue")) == 1


def test_store_in_a_folder_that_is_not_there_is_named_in_one_line(grow, tmp_path):
    tree = grow(env={"CHAOS_URL": f"sqlite:///{tmp_path}/nowhere/jobs.db"})

    assert tree.wait() == WRONG
    assert "nowhere" in only_line(tree)


def test_file_of_another_program_is_left_alone_and_named_in_one_line(grow, tmp_path):
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as other:
        other.execute("CREATE TABLE theirs (what TEXT)")
    before = (tmp_path / "jobs.db").read_bytes()

    tree = grow()

    assert tree.wait() == WRONG
    assert "jobs.db" in only_line(tree)
    assert (tmp_path / "jobs.db").read_bytes() == before


def test_file_that_is_no_database_is_left_alone_and_named_in_one_line(grow, tmp_path):
    (tmp_path / "jobs.db").write_text("shopping list\n" * 1000)

    tree = grow()

    assert tree.wait() == WRONG
    assert "jobs.db" in only_line(tree)
    assert (tmp_path / "jobs.db").read_text() == "shopping list\n" * 1000


def test_worker_whose_output_is_closed_works_all_the_same(grow, ledger, tmp_path):
    [job] = ledger.enqueue(("brief", {"n": 0, "seconds": 0}))
    close_both = "import os; os.close(1); os.close(2); "

    tree = grow("--burst", program=close_both + PROGRAM)

    assert tree.wait() == 0
    assert ledger.state(job) == "succeeded"
