"""Headers, tags and meta on the command line: given, listed, shown and escaped."""

import asyncio

import pytest

from outlast.cli.app_loader import load_app

from .conftest import Cli

GIVEN = (
    "--tag", "urgent", "--tag", "big one", "--header", "trace=00-1=2",
    "--meta", "tenant=acme", "--meta", "size=3", "--meta", 'deep={"a": [1]}',
)  # fmt: skip


def test_enqueue_takes_tags_headers_and_meta(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}', *GIVEN)

    [shown] = cli.documents("show", job_id)

    assert shown["tags"] == ["urgent", "big one"]
    assert shown["headers"] == {"trace": "00-1=2"}
    assert shown["meta"] == {"tenant": "acme", "size": 3, "deep": {"a": [1]}}


def test_show_prints_them_and_leaves_them_out_when_there_are_none(cli: Cli) -> None:
    labelled = cli.out("show", cli.enqueue("add", '{"left": 1}', *GIVEN))
    tagged = cli.out("show", cli.enqueue("add", '{"left": 1}', "--tag", "urgent"))
    plain = cli.out("show", cli.enqueue("add", '{"left": 1}'))

    assert '  tags      ["urgent", "big one"]\n' in labelled
    assert '  headers   {"trace": "00-1=2"}\n' in labelled
    assert '  meta      {"tenant": "acme", "size": 3, "deep": {"a": [1]}}\n' in labelled
    assert [name for name in ("tags", "headers", "meta") if f"  {name} " in tagged] == ["tags"]
    assert not any(f"  {name} " in plain for name in ("tags", "headers", "meta", "metadata"))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["tag:urgent"], {"one", "two"}),
        (["tag:big one"], {"one"}),
        (["tag:a:b=c"], {"two"}),
        (["tag:urgent", "tag:a:b=c"], {"two"}),
        (["meta.tenant:acme"], {"one"}),
        (["meta.tenant=acme"], {"one"}),
        (["meta.size:3"], {"one"}),
        (["meta.size:3", "tag:a:b=c"], set()),
        (["tag:urgent", "state:dead"], set()),
        (["tag:urgent", "type:a*", "params.left:2", "since:1h"], {"two"}),
        (["tag:none"], set()),
        (["meta.none:acme"], set()),
    ],
)
def test_a_filter_by_tag_or_meta_lists_what_it_says(
    cli: Cli, filters: list[str], expected: set[str]
) -> None:
    ids = {
        cli.enqueue("add", '{"left": 1}', *GIVEN): "one",
        cli.enqueue("add", '{"left": 2}', "--tag", "urgent", "--tag", "a:b=c"): "two",
        cli.enqueue("add", '{"left": 3}'): "three",
    }

    assert {ids[job["id"]] for job in cli.documents("jobs", *filters)} == expected


def test_jobs_of_a_tag_are_cancelled_together(cli: Cli) -> None:
    gone, stays = cli.enqueue("add", '{"left": 1}', "--tag", "x"), cli.enqueue("add", '{"left": 1}')

    cli.out("cancel", "tag:x", "-y")

    assert [cli.documents("show", job_id)[0]["state"] for job_id in (gone, stays)] == [
        "cancelled",
        "queued",
    ]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--tag", "x" * 65], "use text of 1 to 64 characters"),
        (["--tag", ""], "use text of 1 to 64 characters"),
        (["--header", "trace"], "write name=text"),
        (["--header", "=x"], "write name=text"),
        (["--header", "a=1", "--header", "a=2"], "given twice"),
        (["--meta", "tenant"], "write name=text"),
        (["--meta", "a b=1"], "a name in meta is 'a b'"),
        (["--meta", "a=NaN"], "meta.a is nan"),
        (["--meta", f"a={'[' * 200}{']' * 200}"], "nested deeper than 100"),
    ],
)
def test_metadata_that_no_job_can_have_is_refused_with_the_remedy(
    cli: Cli, typed: list[str], message: str
) -> None:
    plain = cli.enqueue("add", '{"left": 1}')

    result = cli("enqueue", "add", '{"left": 1}', *typed)

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert [job["id"] for job in cli.documents("jobs")] == [plain]


@pytest.mark.parametrize("word", ["tag:", f"tag:{'x' * 65}", "meta.a:" + "x" * 257])
def test_a_filter_that_no_job_can_match_is_refused(cli: Cli, word: str) -> None:
    cli.enqueue("add", '{"left": 1}')

    result = cli("jobs", word)

    assert result.exit_code == 2
    assert "use text of" in result.stderr or "cannot be matched" in result.stderr


def test_text_in_tags_headers_and_meta_is_escaped(cli: Cli) -> None:
    hostile = "\x1b[2J\nFORGED\u202e"

    async def enqueue() -> str:
        app = load_app("tasks:app")
        async with app:
            add = app.registry.get("add")
            given = {"headers": {hostile: hostile}, "meta": {"x": {hostile: hostile}}}
            return (await add.options(tags=[hostile], **given).enqueue(left=1)).id

    shown = cli.out("show", asyncio.run(enqueue()))

    assert not any(char in shown for char in "\x1b\u202e")
    assert not any(line.startswith("FORGED") for line in shown.splitlines())
