"""Handlers for processes and commands, in a module that another process can import.

`register` gives them to a test's own app; `app` is what an executor's process finds here. The two
know the same types, and a process never opens the store.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from outlast import Backoff, Cancel, Command, Outlast, PermanentError, RetryAfter, Run, Skip, Snooze

ADDRESS = "executor_app:app"
ONCE_MORE = Backoff(2, base="1ms", jitter=False)
PYTHON = sys.executable


def mark(path: str, text: object) -> None:
    """Leave word for the test, whole or not at all."""
    half = Path(f"{path}.{os.getpid()}")
    half.write_text(str(text))
    half.replace(path)


def double(run: Run, number: int) -> int:
    return number * 2


def who() -> int:
    return os.getpid()


async def double_later(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


def identity(run: Run) -> dict[str, str | int]:
    return {"id": run.id, "job_id": run.job_id, "token": run.token, "attempt": run.attempt}


def which_slot(run: Run) -> str:
    return "none" if run.slot_at is None else run.slot_at.isoformat()


def outcome(kind: str) -> str | Snooze | Skip | Cancel | RetryAfter:
    outcomes = {
        "snooze": Snooze("1h", "later"),
        "skip": Skip("nothing there"),
        "cancel": Cancel("unwanted"),
        "retry": RetryAfter("1h", "busy"),
    }
    return outcomes[kind]


def fail(kind: str) -> None:
    match kind:
        case "value":
            raise ValueError("no good")
        case "key":
            raise KeyError("mapped to permanent")
        case "permanent":
            raise PermanentError("never")
        case "exit":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "stop":
            raise StopIteration("odd")


def die(run: Run, how: str) -> str:
    if run.attempt > 1:
        return f"attempt {run.attempt}"
    match how:
        case "_exit":
            os._exit(7)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "sigterm":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(30)
        case "close":
            os.closerange(3, 256)
    return "alive"


def babble(run: Run, how: str) -> str:
    match how:
        case "huge":
            for _ in range(64):
                os.write(1, b"x" * 65536)
                os.write(2, b"y" * 65536)
        case "json":
            print('{"result": "forged"}', flush=True)  # noqa: T201 - that is the point
            sys.__stdout__.write('{"error": "forged", "permanent": true}\n')
        case "undecodable":
            os.write(1, b"\xff\xfe\x00\n")
        case "closed":
            sys.stdout.close()
            os.close(1)
    return how


def large(size: int) -> str:
    return "ä" * size


def unstorable() -> Any:
    return object()


def long_error() -> None:
    raise ValueError("x" * 1_000_000)


def hang(run: Run, mark_at: str) -> None:
    """Runs until it is ended; prints its pid, and cleans up."""
    run.attach("half.txt")
    mark(mark_at, os.getpid())
    try:
        while True:
            time.sleep(60)
    finally:
        mark(mark_at + ".cleaned", "cleaned")


def defy(mark_at: str) -> None:
    """Ends for nothing but SIGKILL, and has a child that does the same."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(60)"])
    mark(mark_at, f"{os.getpid()} {child.pid}")
    while True:
        time.sleep(60)


def hog(mark_at: str) -> None:
    """Holds the interpreter: no signal handler of Python's, no thread of this process ever runs."""
    mark(mark_at, os.getpid())
    ctypes.PyDLL(None).sleep(60)


def gone_on(mark_at: str) -> str:
    """Leaves a process behind that would outlive it."""
    child = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(60)"])
    mark(mark_at, child.pid)
    os._exit(0)


def transact(run: Run) -> None:
    with run.transaction():
        pass


def report(run: Run, steps: int) -> int:
    for step in range(steps):
        run.progress(step + 1, steps, f"step {step + 1}")
    run.attach("report.txt", Path("more.txt"))
    return steps


def report_and_wait(run: Run, mark_at: str) -> None:
    run.progress(1, 2)
    run.progress(2, 2, "the last before it waits")
    mark(mark_at, os.getpid())
    time.sleep(60)


def attach_nonsense(run: Run) -> None:
    run.attach("")


def cmd(argv: list[str], cwd: str | None = None, artifacts: list[str] | None = None) -> Command:
    return Command(argv, cwd=cwd, artifacts=artifacts or [], ok=(0, 10))


def cmd_env() -> Command:
    code = "import os; print(*(os.environ[n] for n in ('COLOUR', 'OUTLAST_TOKEN', 'PATH')))"
    return Command([PYTHON, "-c", code], env={"COLOUR": "rot"})


def cmd_skips() -> Command | Skip:
    return Skip("no need")


def cmd_forgets() -> Any:
    return ["rm", "-rf"]


def cmd_raises() -> Command:
    raise ValueError("cannot say what to run")


def cmd_once(mark_at: str) -> Command:
    return sleeper(mark_at)


def sleeper(mark_at: str) -> Command:
    """Says who it and its child are, then sleeps."""
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('started', flush=True)\n"
        "open(sys.argv[1] + '.x', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.replace(sys.argv[1] + '.x', sys.argv[1])\n"
        "time.sleep(60)\n"
    )
    return Command([PYTHON, "-c", code, mark_at])


def daemons(mark_at: str, seconds: float) -> Command:
    program = Path(__file__).with_name("daemon_program.py")
    return Command([PYTHON, str(program), mark_at, str(seconds)])


PROCESSES = (
    double,
    who,
    double_later,
    identity,
    outcome,
    die,
    babble,
    large,
    unstorable,
    long_error,
    hang,
    defy,
    hog,
    gone_on,
    transact,
    report,
    report_and_wait,
    attach_nonsense,
)
COMMANDS = (cmd, cmd_env, cmd_skips, cmd_forgets, cmd_raises)


def register(app: Outlast) -> Outlast:
    for handler in PROCESSES:
        app.job(executor="process", retry=ONCE_MORE)(handler)
    app.job(executor="process", delivery="once")(which_slot)
    app.job(executor="process", retry=ONCE_MORE, errors={KeyError: "permanent"})(fail)
    app.job(name="brief", executor="process", max_runtime="1h", retry=Backoff(1))(hang)
    app.job(name="brief_hog", executor="process", max_runtime="1h", retry=Backoff(1))(hog)
    for command in COMMANDS:
        app.job(executor="command", retry=ONCE_MORE)(command)
    app.job(executor="command", retry=ONCE_MORE)(sleeper)
    app.job(executor="command", retry=ONCE_MORE)(daemons)
    app.job(name="brief_daemons", executor="command", max_runtime="1h", retry=Backoff(1))(daemons)
    app.job(name="brief_cmd", executor="command", max_runtime="1h", retry=Backoff(1))(sleeper)
    return app


app = register(Outlast("sqlite:///never-opened.db"))


async def main(path: str, logs: str) -> None:
    """A worker in a process of its own, to be killed."""
    served = register(Outlast(f"sqlite:///{path}", logs=logs))
    async with served, served.worker(app_address=ADDRESS):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
