"""A SQLite store with hostile text in every field that a command shows."""
# ruff: noqa: S608 - the statements are made of words of this module

import sqlite3
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from outlast import JobType, Outlast
from outlast.core.decide import decide
from outlast.core.event import Failed
from outlast.core.worker import WorkerInfo

_CONTROLS: Final = [chr(n) for n in (*range(1, 32), 127, 0x80, 0x85, 0x90, 0x9B, 0x9C, 0x9D, 0x9F)]
_BIDI: Final = [chr(n) for n in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F))]
_ISOLATES: Final = [chr(n) for n in range(0x2066, 0x206A)]
_INVISIBLE: Final = ["\u00ad", "\u200b", "\u2060", "\u2028", "\u2029", "\ufeff", "\U000e0041"]
_SEQUENCES: Final = [
    "\x1b[2J", "\x1b]0;title\x07", "\x1b[31mred", "\x9b2J", "\x1bP+q\x1b\\", "\x1b[6n",
    "\nFORGED", "\r\nFORGED", "\rFORGED", "\x85FORGED", "\u2028FORGED", "\x0bFORGED",
    "[/tmp full]", "[bold]", "[link=file:///etc]x[/link]", "[@click=quit]x[/]", "[[", "\\[/",
    ":smile:", "{task.speed}", "{0}", "%s %(name)s", "a=b c='d' \"e\"", "日本語", "e\u0301", "🙂",
]  # fmt: skip
TEXTS: Final = (*_CONTROLS, *_BIDI, *_ISOLATES, *_INVISIBLE, *_SEQUENCES)
EVERY_TEXT: Final = " ".join(TEXTS)

PAYLOADS: Final[Mapping[str, str]] = {
    "not JSON": "{not json",
    "empty": "",
    "deep list": '{"x":' + "[" * 3000 + "]" * 3000 + "}",
    "deep object": '{"x":' * 3000 + "1" + "}" * 3000,
    "long number": '{"x":' + "7" * 5000 + "}",
    "lone surrogate": '{"x":"\\ud800"}',
    "not a number": '{"x":NaN,"y":Infinity}',
    "no object": "[1]",
    "control": '{"x":"\x9b2J\u202e\x7f"}',
}
"""Params that no caller can store, but a damaged or foreign store can hold."""

WORKER: Final = WorkerInfo(
    instance_id="w1",
    boot_id="b1",
    host="h",
    pid=1,
    queues=("default",),
    types=("add",),
    concurrency=1,
)


async def build(path: Path) -> dict[str, str]:
    """Create the store; return the ids of its jobs and of its group by what they are."""
    app = Outlast(f"sqlite:///{path}")

    @app.job
    async def add(x: int = 0) -> int:
        return x

    async with app:
        ids = {"ended": (await add.enqueue()).id, "running": (await add.enqueue()).id}
        await _run(app)
        ids |= {name: (await add.enqueue()).id for name in ("waiting", "renamed")}
        for text in TEXTS:
            await app.cancel((await add.enqueue()).id, text)
        ids |= {name: await _ended(app, add) for name in PAYLOADS}
        ids["group"] = (await app.groups.start([add.bind()], name="g")).id
        await app.queues.pause("default", reason="r")
        await app.templates.save("t", add)
        for name in ("nightly", "renamed"):
            await app.schedules.save(name, "0 2 * * *", add, coalesce=True, misfire_grace="1m")
            await app.schedules.run(name, "next")
    _corrupt(path, ids)
    return ids


async def _ended(app: Outlast, job_type: JobType[..., int]) -> str:
    job_id = (await job_type.enqueue()).id
    await app.cancel(job_id)
    return job_id


async def _run(app: Outlast) -> None:
    """Claim two jobs: one fails, the other keeps running."""
    store, lease = app.store, timedelta(days=1)
    await store.register_worker(WORKER)
    await store.heartbeat(WORKER.holder, span=lease)
    ended, running = await store.claim(
        WORKER.holder, queue="default", types=["add"], limit=2, lease=lease
    )
    failed = decide(ended, Failed("e", permanent=True), new_id=lambda: ended.job_id)
    await store.apply([failed])
    await store.record_progress([(running.lease, '{"done":1}')])


def _corrupt(path: Path, ids: Mapping[str, str]) -> None:
    """Write the hostile text over the values that only a foreign program could have written."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA ignore_check_constraints = 1")
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'"):
        connection.execute(f"DROP TRIGGER {name}")
    log = path.with_suffix(".log")
    log.write_bytes(EVERY_TEXT.encode() + b"\xff\xfe")
    values = {"text": EVERY_TEXT, "log": str(log)}
    for statement in _STATEMENTS.split(";"):
        connection.execute(statement, values)
    for table, key in (("jobs", "seq"), ("waiting", "job")):
        which = "(SELECT seq FROM outlast_jobs WHERE id = ?)"
        names = "type = ?, queue = ?, name = ?"
        connection.execute(
            f"UPDATE outlast_{table} SET {names} WHERE {key} = {which}",
            (EVERY_TEXT, EVERY_TEXT, EVERY_TEXT, ids["renamed"]),
        )
    for name, text in PAYLOADS.items():
        connection.execute("UPDATE outlast_jobs SET params = ? WHERE id = ?", (text, ids[name]))
    connection.commit()
    connection.close()


_STATEMENTS: Final = """
UPDATE outlast_queues SET pause_reason = :text;
UPDATE outlast_workers SET instance_id = :text WHERE instance_id = 'w1';
UPDATE outlast_open_runs SET progress = :text;
UPDATE outlast_runs
SET error = :text, reason = :text, result = :text, log_path = :log, progress = :text;
UPDATE outlast_events SET reason = :text, detail = :text;
UPDATE outlast_groups SET name = :text, reason = :text;
UPDATE outlast_documents SET key = :text;
UPDATE outlast_schedules SET name = :text WHERE name = 'renamed';
UPDATE outlast_schedules
SET plan = json_set(plan, '$.making.type', :text, '$.rule.cron', :text);
UPDATE outlast_slots SET reason = :text;
INSERT INTO outlast_reservations
(id, queue, job_id, caller, request, reserved_at, expires_at, span, until)
VALUES ('r', 'default', :text, :text, 'q', 0, 9, 1, 9)
"""
