"""Listing, showing and changing jobs from the command line."""

import asyncio

import pytest

from outlast.cli.app_loader import load_app

from .conftest import Cli


def test_an_enqueued_job_is_listed_and_shown(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')

    (row,) = cli.documents("jobs")
    (shown,) = cli.documents("show", job_id)

    assert (row["id"], row["state"], row["type"]) == (job_id, "queued", "add")
    assert shown["id"] == job_id
    assert shown["runs"] == []
    assert job_id in cli.out("jobs")
    assert '"left":1' in cli.out("show", job_id)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["type:add"], {"one", "two"}),
        (["type:a*"], {"one", "two"}),
        (["queue:mail"], {"three"}),
        (["state:queued", "params.left:2"], {"two"}),
        (["state:waiting"], {"one", "two", "three"}),
        (["state:dead"], set()),
        (["since:1h"], {"one", "two", "three"}),
        (["params.user:ada"], {"three"}),
    ],
)
def test_a_filter_lists_what_it_says(cli: Cli, filters: list[str], expected: set[str]) -> None:
    ids = {
        cli.enqueue("add", '{"left": 1}'): "one",
        cli.enqueue("add", '{"left": 2}'): "two",
        cli.enqueue("broken", '{"user": "ada"}'): "three",
    }

    assert {ids[job["id"]] for job in cli.documents("jobs", *filters)} == expected


def test_a_key_finds_the_job_that_holds_it(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}', "--key", "inv:3")
    cli.enqueue("add", '{"left": 1}')

    assert [job["id"] for job in cli.documents("jobs", "key:inv:3")] == [job_id]


def test_the_beginning_of_an_id_is_enough_when_it_is_unique(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')

    assert cli.documents("show", job_id[:-4])[0]["id"] == job_id


def test_the_error_of_a_failed_run_is_searched_and_shown(cli: Cli) -> None:
    job_id = cli.enqueue("broken", '{"user": "ada"}')
    cli.enqueue("add", '{"left": 1}')
    cli.burst()

    assert [job["id"] for job in cli.documents("jobs", "error:keyerror")] == [job_id]
    assert "KeyError: 'ada'" in cli.out("show", job_id)


def test_cancel_by_filter_counts_asks_and_cancels(cli: Cli) -> None:
    ids = [cli.enqueue("add", f'{{"left": {n}}}') for n in range(3)]

    refused = cli("cancel", "type:add", typed="n\n")
    assert "3 jobs" in refused.stderr
    assert len(cli.documents("jobs", "state:queued")) == 3

    done = cli("cancel", "type:add", "--yes", "--reason", "enough")
    assert done.exit_code == 0
    cancelled = cli.documents("jobs", "state:cancelled")
    assert {job["id"] for job in cancelled} == set(ids)
    assert {job["reason"] for job in cancelled} == {"enough"}


def test_retry_makes_a_linked_job_and_show_draws_the_lineage(cli: Cli) -> None:
    job_id = cli.enqueue("broken", '{"user": "ada"}')
    cli.burst()

    cli.out("retry", "type:broken", "--yes")

    drawn = cli.out("show", job_id)
    (again,) = cli.documents("jobs", "state:queued")
    assert again["retry_of"] == job_id
    assert drawn.index(job_id) < drawn.index(again["id"])
    assert "← this one" in drawn


def test_counts_are_by_queue_and_state(cli: Cli) -> None:
    cli.enqueue("add", '{"left": 1}')
    cli.enqueue("broken", '{"user": "a"}')

    assert {(c["queue"], c["state"]): c["jobs"] for c in cli.documents("jobs", "--count")} == {
        ("default", "queued"): 1,
        ("mail", "queued"): 1,
    }


def test_enqueue_checks_before_it_writes(cli: Cli) -> None:
    for args in ('{"left": "x"}', '{"wrong": 1}', "[1]", "{", '{"left": 1, "more": 2}'):
        result = cli("enqueue", "add", args)
        assert result.exit_code == 2, args
        assert result.stdout == ""
    assert not (cli.folder / "jobs.db").exists() or cli.documents("jobs") == []


def test_edit_changes_a_waiting_job(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')

    cli.out("edit", job_id, "--params", '{"left": 5}', "--priority", "7")

    (job,) = cli.documents("jobs")
    assert (job["params"], job["priority"]) == ({"left": 5}, 7)
    assert cli("edit", job_id, "--params", '{"left": "no"}').exit_code == 2
    assert cli("edit", job_id).exit_code == 2


def test_move_shows_the_new_order(cli: Cli) -> None:
    cli.out("queue", "save", "studio", "--ordering", "position", "--concurrency", "1")
    first, second, third = (cli.enqueue("story", f'{{"title": "{t}"}}') for t in "abc")

    cli.out("move", third, "front")
    assert [job["id"] for job in cli.documents("queue", "order", "studio")] == [
        third,
        first,
        second,
    ]
    cli.out("move", second, "--before", first)
    assert [job["id"] for job in cli.documents("queue", "order", "studio")] == [
        third,
        second,
        first,
    ]
    assert cli("move", second).exit_code == 2
    assert cli("move", second, "front", "--after", first).exit_code == 2


def test_a_paused_queue_says_so_until_it_is_resumed(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')
    cli.out("queue", "pause", "default", "--reason", "db move")

    (reported,) = cli.documents("explain", job_id)
    assert reported["stop"]["code"] == "paused"
    assert "db move" in cli.out("explain", job_id)
    assert "db move" in cli.out("queue", "list")

    cli.out("queue", "resume", "default")
    (reported,) = cli.documents("explain", job_id)
    assert reported["stop"]["code"] == "worker"


def test_a_group_says_how_it_stands_also_to_a_script(cli: Cli) -> None:
    async def start() -> str:
        app = load_app("tasks:app")
        async with app:
            add = app.registry.get("add")
            return (await app.groups.start([add.bind(1), add.bind(2)])).id

    group_id = asyncio.run(start())
    (reported,) = cli.documents("group", "get", group_id)
    assert (reported["state"], reported["done"], reported["total"]) == ("running", 0, 2)
    cli.burst()

    (reported,) = cli.documents("group", "list")
    assert (reported["id"], reported["state"], reported["progress"]) == (group_id, "succeeded", 1.0)
    assert "succeeded" in cli.out("group", "get", group_id)


def test_enqueue_says_what_became_of_a_job_whose_key_is_taken(cli: Cli) -> None:
    window = ("--key", "k", "--unique-for", "1h")
    first = cli.enqueue("add", '{"left": 1}', *window)

    (again,) = cli.documents("enqueue", "add", '{"left": 2}', *window)
    (newer,) = cli.documents("enqueue", "add", '{"left": 3}', *window, "--on-conflict", "replace")

    assert again == {"id": first, "created": False, "replaced": False}
    assert newer == {"id": first, "created": False, "replaced": True}
    assert cli.documents("show", first)[0]["params"] == {"left": 3}


def test_enqueue_refuses_options_of_a_key_that_contradict_each_other(cli: Cli) -> None:
    both = cli("enqueue", "add", '{"left": 1}', "--key", "k", "--debounce", "1s", "--key-until=end")
    alone = cli("enqueue", "add", '{"left": 1}', "--unique-for", "1h")

    assert "key_until and debounce were both given" in both.output
    assert "unique_for was given without key" in alone.output
    assert cli.documents("jobs") == []
