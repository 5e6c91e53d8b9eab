"""Handlers whose payloads are encoded, in a module that a handler process can import.

`install` gives them to a test's own app; `app` is what a handler process finds here.
"""

import asyncio
import logging
import sys

from outlast import Backoff, Command, Outlast, Run
from outlast.encryption import AESGCMCodec

ADDRESS = "codec_app:app"
log = logging.getLogger("codec_app")
log.setLevel(logging.INFO)
KEYS = {"2026-11": b"k" * 32}
SECRET = "hunter2 of ada"  # noqa: S105 - the one that must not be stored or logged
AT_ONCE = Backoff(2, base="1ms", jitter=False)


def codec() -> AESGCMCodec:
    return AESGCMCodec(KEYS, "2026-11")


async def in_loop(run: Run, secret: str) -> str:
    run.progress(1, 2, f"for {secret}")
    await asyncio.sleep(0)
    return secret


async def at_once(secret: str) -> str:
    return secret


def in_thread(run: Run, secret: str) -> str:
    run.progress(1, 2, f"for {secret}")
    return secret


def in_process(run: Run, secret: str) -> str:
    run.progress(1, 2, f"for {secret}")
    return secret


async def logs_in_loop(secret: str) -> None:
    log.info("loop logs %s", secret)


def logs_in_thread(secret: str) -> None:
    log.info("thread logs %s", secret)


def logs_in_process(secret: str) -> None:
    log.info("process logs %s", secret)


async def fails_in_loop(secret: str) -> None:
    raise ValueError(f"refused {secret}")


def fails_in_thread(secret: str) -> None:
    raise ValueError(f"refused {secret}")


def fails_in_process(secret: str) -> None:
    raise ValueError(f"refused {secret}")


def fails_in_command(secret: str) -> Command:
    program = "import sys; print('refused', sys.argv[1]); sys.exit(3)"
    return Command([sys.executable, "-c", program, secret])


def install(app: Outlast) -> Outlast:
    for handler in (in_loop, at_once, in_thread, logs_in_loop, logs_in_thread):
        app.job(handler)
    app.job(executor="process")(logs_in_process)
    app.job(executor="process")(in_process)
    for handler in (fails_in_loop, fails_in_thread):
        app.job(retry=AT_ONCE)(handler)
    app.job(retry=AT_ONCE, executor="process")(fails_in_process)
    app.job(retry=AT_ONCE, executor="command")(fails_in_command)
    return app


app = install(Outlast("sqlite:///unused.db", codec=codec()))
