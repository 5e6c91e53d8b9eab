"""S1: templates are stored, and a job made from one keeps what it was made of."""
# ruff: noqa: S608 - the words that make up these statements are ours

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from outlast import Backoff, Outlast
from outlast.clock import to_micros
from outlast.core.template import Template
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock

from .app_helpers import drain, live
from .child_process import ask
from .database_file import Sql
from .test_s1_owners import orphans_of, owners_of


def _story(app: Outlast) -> Any:
    @app.job(delivery="linked", retry=Backoff(2, base="0s"))
    def story(title: str, pages: int = 1) -> None:
        if title == "broken":
            raise TimeoutError("no answer")

    return story


async def _save_and_tell(mouth: Any, path: Path) -> None:
    """A process that saves a template and dies without a word of goodbye."""
    app = live(path)
    saved = await app.templates.save("tale", _story(app), params={"title": "one"}, queue="lane")
    mouth.send((saved.id, saved.updated_at))


async def _make_one(mouth: Any, path: Path) -> None:
    """Another process that makes a job of it."""
    app = live(path)
    _story(app)
    async with app:
        job = await (await app.templates.enqueue("tale", pages=3)).read()
        template = await app.templates.get("tale")
    mouth.send((template, job))


@pytest.mark.req("S1-1.2.g")
def test_a_template_outlives_its_process_and_its_job_carries_it(path: Path) -> None:
    saved_id, saved_at = ask(_save_and_tell, path)

    template, job = ask(_make_one, path)

    assert isinstance(template, Template)
    assert (template.id, template.updated_at) == (saved_id, saved_at)
    assert (template.name, template.type, template.queue) == ("tale", "story", "lane")
    assert (job.template_id, job.template_at) == (saved_id, saved_at)
    assert json.loads(job.params) == {"title": "one", "pages": 3}


@pytest.mark.req("S1-2.1.b")
async def test_a_jobs_template_is_set_once_and_for_ever(
    app: Outlast, store: SqliteStore, sql: Sql
) -> None:
    template = await app.templates.save("tale", _story(app), params={"title": "one"})
    made = await app.templates.enqueue("tale")
    plain = await app.registry.get("story").enqueue("two")

    kept = dict(sql.rows("SELECT id, template_id FROM outlast_jobs"))

    assert kept == {made.id: str(UUID(template.id)), plain.id: None}
    assert sql.value("SELECT template_at FROM outlast_jobs WHERE id = ?", made.id) == to_micros(
        template.updated_at
    )
    for job_id in kept:
        for change in ("template_id = 'x'", "template_id = NULL", "template_at = 7"):
            if (job_id, change) != (plain.id, "template_id = NULL"):  # which changes nothing
                sql.refuses(f"UPDATE outlast_jobs SET {change} WHERE id = '{job_id}'")


@pytest.mark.req("S1-2.2.c")
async def test_a_run_keeps_the_template_as_it_was_used(app: Outlast, clock: FakeClock) -> None:
    story = _story(app)
    first = await app.templates.save("tale", story, params={"title": "one"})
    handle = await app.templates.enqueue("tale")
    await drain(app)
    [before] = await app.runs(handle.id)
    clock.advance("1h")

    second = await app.templates.save("tale", story, params={"title": "changed"})
    [edited] = await app.runs(handle.id)
    await app.templates.remove("tale")
    [removed] = await app.runs(handle.id)

    assert before == edited == removed
    assert (before.template_id, before.template_at) == (first.id, first.updated_at)
    assert json.loads(before.params_snapshot) == {"title": "one"}
    assert second.updated_at > first.updated_at


@pytest.mark.req("S1-2.2.c")
async def test_a_retry_of_a_job_from_a_template_has_the_same_version_of_it(
    app: Outlast, store: SqliteStore, clock: FakeClock
) -> None:
    story = _story(app)
    first = await app.templates.save("tale", story, params={"title": "broken"})
    handle = await app.templates.enqueue("tale")
    clock.advance("1s")
    await app.templates.save("tale", story, params={"title": "mended"})

    await drain(app)  # fails, and its successor fails
    by_hand = await app.retry(handle.id)
    await drain(app)

    chain = await store.chain(handle.id)
    runs = [run for job in chain for run in await store.runs(job.id)]
    assert len(runs) == len(chain) == 4
    assert chain[2].id == by_hand.id
    assert {(run.template_id, run.template_at) for run in runs} == {(first.id, first.updated_at)}
    assert {run.params_snapshot for run in runs} == {'{"title":"broken"}'}


def test_one_verb_writes_records() -> None:
    """`load` only fills a store from another one, before it takes any work."""
    assert owners_of("outlast_documents") == {"swap", "load"}
    assert orphans_of("outlast_documents") == set()


@pytest.mark.req("S1-2.4.d")
async def test_the_lineage_counts_the_links_to_the_root(app: Outlast) -> None:
    handle = await _story(app).enqueue("broken")
    await drain(app)
    await app.retry(handle.id)

    lineage = await app.lineage(handle.id)

    assert [lineage.attempt(job.id) for job in lineage.jobs] == [0, 1, 2]
    assert [job.retry_of for job in lineage.jobs] == [None, *(job.id for job in lineage.jobs[:2])]
