"""One side on one database: install, fill, start workers, wait for the end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import psycopg

from bench.child import ROOT
from bench.pg import marks
from bench.pg.sides import side
from outlast.testing.servers.postgres import PostgresServer

LIMIT = 900.0
"""No step takes longer, in seconds."""

POLL = 0.005
EXIT_TIMEOUT_S = 20.0
Process = subprocess.Popen[bytes]
URL = "OUTLAST_BENCH_URL"


class Field:
    """A database for one side, and the folder where its handlers leave their marks."""

    def __init__(self, server: PostgresServer, folder: Path, name: str) -> None:
        self.name = name
        self.url = server.new_database()
        self.marks = folder / f"{name.replace(' ', '-')}-{self.database}"
        self.marks.mkdir()
        self._server, self._side = server, side(name)
        self._workers: list[Process] = []
        self._ask("install")

    @property
    def database(self) -> str:
        return self.url.rpartition("/")[2]

    def close(self) -> None:
        self._server.drop_database(self.database)

    def seconds(self, what: str, jobs: int) -> float:
        """Return the seconds that `bulk`, `one` or `paced` take for that many jobs."""
        return float(self._ask(what, str(jobs))["seconds"])

    def rest(self) -> None:
        """Before the clock runs: statistics are fresh and nothing waits to be written."""
        self.query("VACUUM (ANALYZE)")
        self.query("CHECKPOINT")

    def finish_all(self, jobs: int) -> None:
        """Finish the waiting jobs, so that they become history."""
        if self._side.FINISH is not None:
            self.query(self._side.FINISH)
        else:
            self.drain(jobs)

    def drain(self, jobs: int, *, workers: int = 1) -> float:
        """Return jobs per second, from the first start until all have ended."""
        with self.working(workers), closing(self._connect()) as connection:
            self.wait_for(jobs)
            self._until(lambda: not _answer(connection, self._side.IS_LEFT))
            over = time.monotonic()
            return jobs / (over - marks.read(self.marks).first)

    def begin(self, jobs: int) -> float:
        """Return jobs per second, from the first start until that many of more have started."""
        with self.working():
            self.wait_for(jobs)
            over, begun = time.monotonic(), marks.read(self.marks)
            return begun.count / (over - begun.first)

    def wait_for(self, jobs: int) -> None:
        """Wait until that many have started."""
        self._until(lambda: marks.count(self.marks) >= jobs)

    @contextmanager
    def working(self, workers: int = 1) -> Iterator[list[int]]:
        """Start workers at the same time; yield their process ids."""
        marks.clear(self.marks)
        with self.log.open("ab") as log:
            self._workers = [self._start(log) for _ in range(workers)]
            try:
                if self._side.COMMAND is None:
                    _begin_together(self._workers)
                yield [process.pid for process in self._workers]
            finally:
                _end(self._workers)

    def query(self, sql: str) -> None:
        """Outside any transaction."""
        with closing(self._connect()) as connection:
            connection.execute(sql.encode())

    @property
    def log(self) -> Path:
        """Return the output of its workers."""
        return self.marks / "log"

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self.url, autocommit=True)

    def _start(self, log: BinaryIO) -> Process:
        own = [sys.executable, "-m", "bench.pg.child", self.name, "work", self.url]
        return subprocess.Popen(
            self._side.COMMAND or own,
            cwd=ROOT,
            env={**os.environ, marks.FOLDER: str(self.marks), URL: self.url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )

    def _until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT
        while not is_so():
            if any(process.poll() is not None for process in self._workers):
                raise SystemExit(f"bench: a worker of {self.name} ended:\n{self._last_words()}")
            if time.monotonic() > deadline:
                begun = marks.count(self.marks)
                told = f"took over {LIMIT:.0f} s; {begun:,} jobs began"
                raise SystemExit(f"bench: {self.name} {told}\n{self._last_words()}")
            time.sleep(POLL)

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def _ask(self, what: str, *rest: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "bench.pg.child", self.name, what, self.url, *rest]
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=False
        )
        if done.returncode:
            raise SystemExit(f"bench: {self.name} {what} failed; its own words are above")
        return dict(json.loads(done.stdout)) if done.stdout.strip() else {}


def _begin_together(workers: Sequence[Process]) -> None:
    """Each says when it has imported everything, and waits for a line."""
    for process in workers:
        assert process.stdout is not None
        process.stdout.readline()
    for process in workers:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()


def _end(workers: Sequence[Process]) -> None:
    """Politely, and after a while not; each has a process group of its own."""
    for process in workers:
        process.send_signal(signal.SIGTERM)
    for process in workers:
        try:
            process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def _answer(connection: psycopg.Connection, sql: str) -> bool:
    row = connection.execute(sql.encode()).fetchone()
    assert row is not None
    return bool(row[0])
