"""`python -m daily_brief.run`: start web and worker, make one brief and print it."""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from command_exit import clean_exit
from outlast import SlotTaken
from outlast.clock import SystemClock

from . import edition, job_runs, page
from .config import DESK_FILE, FILE, store_url
from .desk import Desk, stamp
from .rules import RULES
from .samples import sample_feeds
from .units import WORKER
from .web import Counter

CHAIN: Final = ("rss_ingestion", "event_clustering", "brief_publication", "retention_cleanup")
EXAMPLES: Final = Path(__file__).parents[1]
JOB_TIMEOUT: Final = "2m"
RECENT_RUNS: Final = 100
SAMPLE_MARK: Final = "# Made-up news, served while the command runs."
COLUMNS: Final = ("job_name", "scheduled_for", "finished_at", "status", "worker_instance")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m daily_brief.run", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("brief"))
    parser.add_argument("--real", action="store_true", help="the feeds of brief.toml, not samples")
    parser.add_argument("--stay", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--port", type=int, default=0, help="of the web pages [a free one]")
    asked = parser.parse_args(argv)
    folder: Path = asked.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    news = nullcontext() if asked.real or _has_own_feeds(folder) else _samples(folder)
    with (
        suppress(KeyboardInterrupt),
        news,
        _worker(folder) as worker,
        _web(folder, asked.port) as address,
    ):
        asyncio.run(_make_a_brief(folder, worker))
        print(f"\nThe page: {folder / 'brief.html'}")
        print(f"Every run: python -m daily_brief.show job_runs {folder}")
        if asked.stay:
            print(f"Worker and web go on until Ctrl-C: {address} and {address}runs", flush=True)
            sys.exit(f"the worker left with {worker.wait()}; {folder}/worker.log says why")


async def _make_a_brief(folder: Path, worker: subprocess.Popen[str]) -> None:
    """Take a slot of each job, as the web does, wait for the worker, and print the result."""
    desk = Desk(folder / DESK_FILE)
    async with Counter(store_url(folder)) as counter:
        while len(await counter.schedules.list()) < len(RULES):
            if worker.poll() is not None:
                sys.exit(f"the worker left with {worker.returncode}; {folder}/worker.log says why")
            await asyncio.sleep(0.05)  # the worker sends no event when it has started
        slot = SystemClock().now().replace(microsecond=0)
        for name in CHAIN:
            with suppress(SlotTaken):  # the schedule took the slot first
                await (await counter.schedules.run(name, slot, any_time=True)).wait(JOB_TIMEOUT)
        await job_runs.install(counter, desk)
    runs = job_runs.latest(desk, RECENT_RUNS)
    _print_runs([row for row in runs if row["scheduled_for"] == stamp(slot)])
    _print_brief(desk, folder)


def _print_runs(rows: Sequence[Mapping[str, Any]]) -> None:
    lines = [COLUMNS, *(tuple(str(row[name] or "")[:26] for name in COLUMNS) for row in rows[::-1])]
    widths = [max(len(line[n]) for line in lines) for n in range(len(COLUMNS))]
    print("job_runs")
    for line in lines:
        print(f"  {'  '.join(map(str.ljust, line, widths)).rstrip()}")


def _print_brief(desk: Desk, folder: Path) -> None:
    now, days = SystemClock().now(), edition.days(desk)
    shown = (edition.published(desk, days[0]) if days else None) or edition.draft(desk, now)
    health = edition.feeds(desk)
    html = page.front(shown, health, days, now)
    (folder / "brief.html").write_text(html, encoding="utf-8")
    print(f"\nThe brief of {shown.day:%d %B %Y}")
    for story in shown.stories:
        print(f"  {len(story.sources)}x  {story.title}")
    for feed in health:
        if feed.error is not None:
            print(f"\nLeft out: {feed.name} ({feed.error})")


def _has_own_feeds(folder: Path) -> bool:
    """Return whether the folder has settings that a user wrote."""
    own = folder / FILE
    return own.exists() and not own.read_text("utf-8").startswith(SAMPLE_MARK)


@contextmanager
def _samples(folder: Path) -> Iterator[None]:
    """Serve sample news and write settings that name the server."""
    with sample_feeds(SystemClock().now()) as feeds:
        lines = [f'"{name}" = "{url}"' for name, url in feeds.items()]
        told = "\n".join([SAMPLE_MARK, "[feeds]", *lines])
        (folder / FILE).write_text(f"{told}\n", encoding="utf-8")
        yield


@contextmanager
def _worker(folder: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = ("-m", "outlast", "worker", "daily_brief.worker:app", "--instance-id", WORKER)
    with (folder / "worker.log").open("ab") as log, _process(folder, *arguments, err=log) as worker:
        yield worker


@contextmanager
def _web(folder: Path, port: int) -> Iterator[str]:
    arguments = ("-m", "daily_brief.web", str(folder), "--port", str(port))
    with (folder / "web.log").open("ab") as log, _process(folder, *arguments, err=log) as web:
        assert web.stdout is not None
        if not (address := web.stdout.readline().strip()):
            sys.exit(f"the web process could not start; {folder}/web.log says why")
        yield address


@contextmanager
def _process(folder: Path, *arguments: str, err: Any) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(  # noqa: S603 - fixed words and this Python
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=err,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


if __name__ == "__main__":
    with clean_exit():
        main()
