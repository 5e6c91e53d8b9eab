"""The app that the trees work for: handlers that note what they do, and misbehave as asked."""

import asyncio
import ctypes
import json
import multiprocessing
import os
import re
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

from outlast import Backoff, Command, Outlast, Run

from .notes import Notes

PATIENT = Backoff(200, base="5ms", cap="50ms")
THREE = Backoff(3, base="1ms", jitter=False)
FINE = 0.01


def register(app: Outlast, notes: Notes) -> Outlast:
    """Every type there is. `n` is the job's own number; a gate is a file that must be there."""

    async def brief(run: Run, n: int, seconds: float) -> int:
        notes.add("start", run)
        await asyncio.sleep(seconds)
        notes.add("end", run)
        return n

    app.job(name="brief", retry=PATIENT)(brief)
    app.job(name="single", retry=Backoff(1))(brief)
    app.job(name="chained", delivery="linked", retry=PATIENT)(brief)
    app.job(name="once", delivery="once")(brief)

    @app.job(retry=PATIENT)
    def threaded(run: Run, n: int, seconds: float) -> int:
        notes.add("start", run)
        time.sleep(seconds)
        notes.add("end", run)
        return n

    @app.job(retry=PATIENT)
    async def paying(run: Run, n: int, seconds: float) -> int:
        notes.add("start", run)
        await asyncio.sleep(seconds)
        async with run.transaction() as conn:
            conn.execute("INSERT INTO effects VALUES (?, ?)", (n, run.token))
        notes.add("end", run)
        return n

    stubborn(app, notes)
    deaf(app, notes)
    blocking(app, notes)
    deadly(app, notes)
    return app


def stubborn(app: Outlast, notes: Notes) -> None:
    """Wait for a gate in their first run; later runs return at once."""

    async def waits(run: Run, gate: str) -> int:
        notes.add("start", run)
        is_first = run.token == run.attempt == 1
        while is_first and not notes.gate(gate).exists():  # noqa: ASYNC110 - another process's
            await asyncio.sleep(FINE)
        notes.add("end", run)
        return run.token

    app.job(name="waits", retry=THREE)(waits)
    app.job(name="waits_chained", delivery="linked", retry=THREE)(waits)
    app.job(name="waits_once", delivery="once")(waits)

    @app.job(retry=THREE)
    def waits_threaded(run: Run, gate: str) -> int:
        notes.add("start", run)
        while run.token == 1 and not notes.gate(gate).exists():
            time.sleep(FINE)
        notes.add("end", run)
        return run.token

    @app.job(retry=THREE, max_runtime="8s")
    async def timely(run: Run) -> None:
        notes.add("start", run)
        while not notes.gate("timely").exists():  # noqa: ASYNC110 - another process's
            await asyncio.sleep(FINE)
        notes.add("end", run)

    @app.job(retry=THREE, max_runtime="500ms")
    def endless(run: Run) -> None:
        notes.add("start", run)
        while True:
            time.sleep(FINE)


def deaf(app: Outlast, notes: Notes) -> None:
    """Hears no request to stop."""

    @app.job(delivery="once")
    def ticks_once(run: Run, gate: str) -> None:
        notes.add("start", run)
        while not notes.gate(gate).exists():
            notes.add("tick", run)
            time.sleep(FINE)
        notes.add("end", run)


def blocking(app: Outlast, notes: Notes) -> None:
    """Occupy the loop, a thread, or the interpreter."""

    @app.job(retry=THREE, queue="loop")
    async def blocks_loop(run: Run, seconds: float) -> int:
        notes.add("start", run)
        time.sleep(seconds)  # noqa: ASYNC251 - that is the point
        return run.token

    @app.job(retry=THREE, queue="threads")
    def blocks_thread(run: Run, seconds: float) -> int:
        notes.add("start", run)
        time.sleep(seconds)
        return run.token

    @app.job(retry=THREE, queue="interpreter")
    def blocks_interpreter(run: Run, seconds: float) -> int:
        notes.add("start", run)
        hold_the_interpreter(seconds)
        return run.token

    @app.job(retry=THREE, queue="interpreter")
    async def blocks_everything(run: Run) -> int:
        notes.add("start", run)
        if run.token == 1:
            hold_the_interpreter_for_ever()
        return run.token

    @app.job(retry=THREE, executor="command")
    def sleeps_in_a_command(run: Run) -> Command:
        notes.add("start", run)
        return Command(["sh", "-c", "setsid sleep 600 & sleep 600"], inherit=["CHAOS_TREE"])

    hungry(app, notes)


def hungry(app: Outlast, notes: Notes) -> None:
    """Take memory and do not return it."""

    @app.job(retry=THREE)
    async def hoards(run: Run, megabytes: int) -> None:
        HOARD.append(bytearray(megabytes << 20))

    @app.job(retry=THREE, max_runtime="10s")
    def eats(run: Run) -> None:
        notes.add("start", run)
        eat_the_memory()


HOARD: list[Any] = []


def deadly(app: Outlast, notes: Notes) -> None:
    """Take their process with them, every time."""

    @app.job(retry=Backoff(1))
    async def fails(run: Run) -> None:
        notes.add("start", run)
        raise ValueError("it always does")

    @app.job(retry=THREE)
    async def exits(run: Run) -> None:
        notes.add("start", run)
        os._exit(1)

    @app.job(retry=THREE)
    async def forks_and_exits(run: Run, seconds: float) -> int:
        notes.add("start", run)
        if run.token > 1:
            return run.token
        if not os.fork():
            time.sleep(seconds)  # noqa: ASYNC251 - in a process of its own, which has no loop
        os._exit(1)

    @app.job(retry=THREE)
    def ends_its_fork(run: Run) -> int | None:
        """How it ended, if it did."""
        ready = multiprocessing.get_context("fork").Event()
        fork = multiprocessing.get_context("fork").Process(target=waits_for_a_signal, args=[ready])
        fork.start()
        ready.wait()
        fork.terminate()
        fork.join(5)
        return fork.exitcode

    @app.job(retry=THREE, executor="command")
    def exits_for_a_command(run: Run) -> Command:
        notes.add("start", run)
        os._exit(1)

    @app.job(retry=THREE)
    def crashes(run: Run) -> None:
        notes.add("start", run)
        ctypes.string_at(0)

    @app.job(retry=THREE)
    async def kills(run: Run) -> None:
        notes.add("start", run)
        os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(60)


def eat_the_memory() -> None:
    """Leave not a byte to the other threads, for as long as this process lives."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), hard))
    size, rest = 1 << 20, None
    while True:
        try:
            rest = (rest, bytes(size))
        except MemoryError:
            size = size // 2 or 64


def waits_for_a_signal(ready: Any) -> None:
    ready.set()
    signal.pause()


def hold_the_interpreter(seconds: float) -> None:
    """PyDLL keeps the lock of the interpreter: no other thread moves."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


def hold_the_interpreter_for_ever() -> None:
    """Unlike a sleep, no signal cuts it short."""
    re.match("(a+)+$", "a" * 60 + "b")


def from_environment() -> Outlast:
    folder = Path(os.environ["CHAOS_FOLDER"])
    url = os.environ.get("CHAOS_URL", f"sqlite:///{folder / 'jobs.db'}")
    settings = json.loads(os.environ["CHAOS_SETTINGS"])
    return register(Outlast(url, **settings), Notes(folder))


if "CHAOS_THREAD" in os.environ:
    threading.Thread(target=threading.Event().wait).start()
if "CHAOS_FOLDER" in os.environ:
    app = from_environment()
