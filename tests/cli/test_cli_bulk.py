"""Cancelling and retrying by filter: exactly those meant, each once."""

from functools import partial

import pytest

from outlast.cli import cancel_retry, job_search

from .conftest import Cli


def test_a_filter_may_be_written_with_an_equals_sign(cli: Cli) -> None:
    one, two = (cli.enqueue("add", f'{{"left": {n}}}') for n in (1, 2))

    cli.out("cancel", "params.left=1", "--yes")
    cli.out("cancel", "type:add", "params.left=2", "--yes")

    assert {job["id"] for job in cli.documents("jobs", "state:cancelled")} == {one, two}
    cli.out("retry", "state=cancelled", "params.left=1", "--yes")
    assert [job["retry_of"] for job in cli.documents("jobs", "state:queued")] == [one]


def test_an_id_beside_a_filter_is_refused(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')

    assert cli("cancel", job_id, "params.left=1", "--yes").exit_code == 2
    assert len(cli.documents("jobs", "state:queued")) == 1


def test_what_was_retried_already_is_left_out(cli: Cli) -> None:
    cli.enqueue("broken", '{"user": "ada"}')
    for _ in range(2):
        cli.burst()
        assert "1 job: " in cli("retry", "type:broken", "--yes").stderr

    again = cli("retry", "type:broken", "--yes")

    assert (again.exit_code, again.stderr) == (0, "no matching jobs\n")
    assert len(cli.documents("jobs")) == 3


def test_finished_jobs_do_not_hide_one_to_cancel(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = cli.enqueue("add", '{"left": 1}', "--in", "1h")
    for n in range(3):
        cli.enqueue("add", f'{{"left": {n}}}')
    cli.burst()
    monkeypatch.setattr("outlast.jobs.job_search.PAGE", 1)
    monkeypatch.setattr(cancel_retry, "search_jobs", partial(job_search.search_jobs, most=2))

    cli.out("cancel", "type:add", "--yes")

    assert [job["id"] for job in cli.documents("jobs", "state:cancelled")] == [waits]


def test_a_confirmation_without_an_answer_names_the_option(cli: Cli) -> None:
    cli.enqueue("add", '{"left": 1}')

    for args in (["cancel", "type:add"], ["db", "prune", "--older-than", "1d"]):
        result = cli(*args)
        assert result.exit_code == 2
        assert "--yes" in result.stderr
    assert len(cli.documents("jobs", "state:queued")) == 1


def test_a_count_heeds_its_filters(cli: Cli) -> None:
    cli.enqueue("add", '{"left": 1}')
    cli.enqueue("broken", '{"user": "a"}')

    assert cli.documents("jobs", "--count", "type:add") == [
        {"queue": "default", "state": "queued", "jobs": 1}
    ]
    assert cli("jobs", "--count", "nonsense").exit_code == 2


def test_text_of_others_cannot_move_the_cursor(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')
    cli.out("cancel", job_id, "--reason", "so\x1b[2J\x9bit")

    for args in (["jobs"], ["show", job_id]):
        printed = cli.out(*args)
        assert "so\\x1b[2J\\x9bit" in printed
        assert "\x1b" not in printed


def test_an_argument_called_self_is_one_like_any_other(cli: Cli) -> None:
    cli.out("template", "save", "daily", "add", '{"left": 1}')

    for args in (["enqueue", "add"], ["template", "enqueue", "daily"]):
        result = cli(*args, '{"self": 1}')
        assert result.exit_code == 2
        assert '"self"' in result.stderr
