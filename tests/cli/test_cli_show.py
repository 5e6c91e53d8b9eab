"""`show` and its neighbours: the result, the error, progress, attempts and retention in words."""

import asyncio
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from outlast import Outlast
from outlast.cli.app_loader import load_app
from outlast.core.decide import decide
from outlast.core.event import Lost, Stopped
from outlast.core.run import Claim, loss_text
from outlast.core.state import Loss
from outlast.core.worker import WorkerInfo
from outlast.store.contract.jobs import Filter

from .conftest import Cli

WORKER = WorkerInfo(
    instance_id="w1", boot_id="b1", host="h", pid=1, queues=("default",), types=("counting",),
    concurrency=2,
)  # fmt: skip
PROGRESS = '{"done": 5, "total": 10, "message": "copying"}'
BAR = "[#####-----] 50 % 5/10 copying"


def in_store(step: Any) -> Any:
    """Run `step(app)` with the app of the folder."""

    async def run() -> Any:
        app = load_app("tasks:app")
        async with app:
            return await step(app)

    return asyncio.run(run())


async def claim(app: Outlast) -> Claim:
    """Let a worker claim the next job."""
    await app.store.register_worker(WORKER)
    [found] = await app.store.claim(
        WORKER.holder, queue="default", types=["counting"], limit=1, lease=timedelta(days=1)
    )
    return found


async def claim_half_done(app: Outlast) -> None:
    found = await claim(app)
    await app.store.record_progress([(found.lease, PROGRESS)])


async def lose(app: Outlast) -> None:
    found = await claim(app)
    lost = decide(found, Lost(Loss.OWNER_DEAD), new_id=lambda: found.id)
    await app.store.apply([lost])


def test_show_prints_the_result_how_long_it_is_kept_and_its_attempt(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1, "right": 2}')
    cli.burst()

    shown = cli.out("show", job_id)

    assert "\nresult\n  3\n" in shown
    assert "  delivery  lease, attempt 1 of 5\n" in shown
    kept = re.search(r"  kept      until (.*) UTC \(retention 30d\)", shown)
    assert kept is not None
    [job] = cli.documents("show", job_id)
    assert (job["result"], job["attempt"], job["error"]) == (3, 1, None)
    assert job["kept_until"].startswith(kept[1].replace(" ", "T"))
    assert f"kept until {kept[1][:10]}" in cli.out("jobs")
    assert f"  kept until {kept[1]}" in cli.out("explain", job_id)


def test_show_prints_the_exception_from_the_users_frame_on(cli: Cli) -> None:
    job_id = cli.enqueue("broken", '{"user": "ada"}')
    cli.burst()

    shown = cli.out("show", job_id)

    assert re.search(r"failed .* KeyError: 'ada'$", shown, re.MULTILINE)
    head, frame, *_, last = shown.split("last error\n")[1].splitlines()
    assert head == "  Traceback (most recent call last):"
    assert f'File "{cli.folder}/tasks.py", line ' in frame
    assert last == "  KeyError: 'ada'"
    assert "kept      for ever: a job that failed is never deleted" in shown
    assert cli.documents("show", job_id)[0]["error"]["type"] == "KeyError"


def test_progress_is_a_bar_with_words_and_survives_a_cancel(cli: Cli) -> None:
    job_id = cli.enqueue("counting", '{"to": 10}')
    in_store(claim_half_done)

    for command in (["show", job_id], ["explain", job_id], ["top", "--once"], ["logs", job_id]):
        assert BAR in cli.out(*command), command
    cli.out("cancel", job_id)
    in_store(_stop)

    assert "cancelled" in cli.out("jobs")
    assert BAR in cli.out("show", job_id)


async def _stop(app: Outlast) -> None:
    """End the run as its handler does after a cancel request."""
    [job] = await app.store.find(Filter(), limit=1)
    await app.store.apply([decide(job, Stopped("asked"), new_id=lambda: job.id)])


def test_a_lost_run_is_described_in_words(cli: Cli) -> None:
    job_id = cli.enqueue("counting", '{"to": 10}')
    in_store(lose)
    in_store(claim)

    shown = cli.out("show", job_id)

    assert "worker w1 died during the run (boot b1)" in shown
    assert "holder=" not in shown
    expired = loss_text(Loss.LEASE_EXPIRED, "w1", "b1")
    assert expired == "worker w1 stopped renewing its lease (boot b1)"
    assert loss_text("other", None, None) == "worker unknown lost the run (other) (boot unknown)"
    assert "lease, attempt 2 of 5" in shown
    assert re.search(r"  worker    w1, (not alive, )?last heartbeat \S+ ago\n", shown)
    assert "on w1, attempt 2 of 5" in cli.out("jobs")


def test_the_chain_of_a_retried_job_shows_only_reasons_that_exist(cli: Cli) -> None:
    job_id = cli.enqueue("add", '{"left": 1}')
    cli.out("cancel", job_id)
    cli.out("retry", job_id)
    cli.burst()

    chain = cli.out("show", job_id).split("retry chain\n")[1]

    assert re.search(r"└─ \S+  succeeded$", chain, re.MULTILINE)
    assert "open" not in chain


def test_a_worker_killed_a_moment_ago_is_called_dead(
    cli: Cli, worker: "subprocess.Popen[bytes]"
) -> None:
    cli.out("db", "migrate")
    while " alive " not in cli.out("workers"):
        assert worker.poll() is None
    cli.enqueue("add", '{"left": 1}', "--in", "1h")
    pids = _tree(worker.pid)

    for pid in pids:
        _kill(pid)
    worker.wait()
    while any(map(_is_running, pids)):
        pass
    # A child that was being started is not among them; the kernel ends it with its supervisor.
    deadline = time.monotonic() + 120
    while " dead " not in cli.out("workers"):
        assert time.monotonic() < deadline, "it is proved dead long before its heartbeat is missed"

    assert "no worker is alive" in cli("workers").stderr
    assert "0 alive" in cli("doctor").stdout
    assert "0 workers" in cli.out("top", "--once")


def _tree(pid: int) -> list[int]:
    """The process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
