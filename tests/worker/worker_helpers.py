"""What the worker's tests share: quick settings, a store that can go away, and other processes."""

import asyncio
import json
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from outlast import Backoff, Handle, Outlast, Settings, State
from outlast.clock import Clock
from outlast.errors import OperatorError, StoreBusy
from outlast.store.open import open_store
from outlast.testing.clock import FakeClock
from outlast.worker.embedded import Worker

T = TypeVar("T")

SOON = "120s"
"""After so long what should happen at once counts as stuck, on however busy a machine."""
PATIENCE = 120.0

QUICK = Settings(
    lease="60s", renew="200ms", tick="50ms", poll="20ms", grace="60s", concurrency=2, prefetch=50
)
"""The lease outlasts any test; a test that needs an expired one calls `take_away`."""
AT_ONCE = Backoff(3, base="1ms", jitter=False)
CHILD = Path(__file__).with_name("worker_child.py")


def quick(path: Path, *, busy: float | None = None, **overrides: Any) -> Outlast:
    """An app on that file with quick settings; `all_slots_work` needs the type it registers."""
    return with_roll_call(Outlast(_url(path, busy), settings=QUICK.with_(**overrides)))


def shaky(
    path: Path, *, busy: float | None = None, clock: Clock | None = None, **overrides: Any
) -> tuple[Outlast, "Shaky"]:
    """The same over a store whose verbs are counted, and fail when told to."""
    store = Shaky(open_store(_url(path, busy), clock=clock))
    return with_roll_call(Outlast(store, settings=QUICK.with_(**overrides))), store


def _url(path: Path, busy: float | None) -> str:
    return f"sqlite:///{path}" + ("" if busy is None else f"?busy={busy}")


def with_roll_call(app: Outlast) -> Outlast:
    present: Counter[str] = Counter()
    complete: dict[str, asyncio.Event] = {}

    @app.job(name="roll_call", retry=Backoff(50, base="1ms", jitter=False, cap="1ms"))
    async def roll_call(call: str, slots: int) -> None:
        """A run that is lost and repeated passes too: all were there at one moment."""
        event = complete.setdefault(call, asyncio.Event())
        present[call] += 1
        if present[call] == slots:
            event.set()
        try:
            async with asyncio.timeout(PATIENCE):
                await event.wait()
        finally:
            present[call] -= 1

    return app


async def all_slots_work(app: Outlast, slots: int = 2) -> bool:
    """Whether a worker can still run that many jobs at the same time: none of its slots died."""
    call = str(asyncio.get_running_loop().time())
    roll_call = app.registry.get("roll_call")
    handles = await app.enqueue_many(roll_call.bind(call, slots) for _ in range(slots))
    ends = [await handle.wait(SOON) for handle in handles]
    return all(job.state is State.SUCCEEDED for job in ends)


async def statuses(app: Outlast, handle: Handle[Any]) -> list[tuple[str, str | None]]:
    """How each run of that job ended, and why."""
    return [(str(run.status), run.reason) for run in await app.runs(handle.id)]


async def kinds(app: Outlast, handle: Handle[Any]) -> list[str]:
    """What was recorded of that job."""
    return [str(event.kind) for event in await app.events(handle.id)]


async def until(is_so: Callable[[], Awaitable[bool] | bool], *, within: float = PATIENCE) -> None:
    """Poll for what no event signals, such as another process's commit."""
    async with asyncio.timeout(within):
        while True:
            answer = is_so()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.005)


async def reaches(handle: Handle[Any], *states: State) -> None:
    """Wait until the job is in one of these states."""

    async def is_there() -> bool:
        return (await handle.read()).state in states

    await until(is_there)


def query(path: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Ask the file, or change it, as any other program on the machine could."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def make_effects(path: Path) -> None:
    """A table of the user's own, in the store's file."""
    query(path, "CREATE TABLE effects (what TEXT NOT NULL, token INTEGER)")


def effects(path: Path) -> list[str]:
    return [what for (what,) in query(path, "SELECT what FROM effects ORDER BY rowid")]


async def take_away(path: Path, handle: Handle[Any]) -> None:
    """Make the lease of a job's first run lapse, as if its worker had been frozen long enough.

    A renewal that is on its way makes it good again, so this repeats until the run is reclaimed.
    """
    await until(lambda: not _lapse(path, handle))


def _lapse(path: Path, handle: Handle[Any]) -> bool:
    sql = (
        "UPDATE outlast_open_runs SET lease_until = 0 "
        "WHERE token = 1 AND job = (SELECT seq FROM outlast_jobs WHERE id = ?) RETURNING job"
    )
    return bool(query(path, sql, handle.id))


async def live_on(store: "Shaky", clock: FakeClock, *, leases: int = 5) -> None:
    """Let the time of that many leases pass, but never a whole one between two renewals."""
    for _ in range(2 * leases):
        received = store.done["renew"] + 2  # one of them begins after now
        await until(lambda received=received: store.done["renew"] >= received)  # type: ignore[misc]
        clock.advance(QUICK.lease / 2)


def run_out_of_time(worker: Worker) -> None:
    """The time of every run of that worker that has a limit is over now."""
    deadlines = worker._engine._pool._attempts._deadlines
    for limit, line in deadlines._watched.items():
        if line:
            deadlines._timers[limit].cancel()
            line.update(dict.fromkeys(line, 0.0))
            deadlines._check(limit)


def expire_leases(path: Path) -> None:
    """Expire the leases of all running jobs; call it when no renewer is left."""
    query(path, "UPDATE outlast_open_runs SET lease_until = 0")


async def taken(*handles: Handle[Any]) -> None:
    """Wait until a worker has claimed each of them, whatever it did with it since."""

    async def all_are() -> bool:
        return all([(await handle.read()).token for handle in handles])

    await until(all_are)


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Another connection holds the file's write lock; what it writes is undone at the end."""
    other = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
    try:
        other.execute("BEGIN EXCLUSIVE")
        yield other
        other.rollback()
    finally:
        other.close()


class Shaky:
    """A store whose verbs fail while they are in `broken`, at most `times` each.

    `failed` counts those, `errors` what the store itself raises, `done` what succeeds.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self.broken: set[str] = set()
        self.times: dict[str, int] = {}
        self.failed: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name not in {"claim", "apply", "renew", "expired_leases", "add", "refusals"}:
            return verb

        async def perhaps(*args: Any, **kwargs: Any) -> Any:
            if name in self.broken and self.failed[name] < self.times.get(name, sys.maxsize):
                self.failed[name] += 1
                raise StoreBusy("the file stays locked, says the test")
            try:
                answer = await verb(*args, **kwargs)
            except OperatorError:
                self.errors[name] += 1
                raise
            self.done[name] += 1
            return answer

        return perhaps


class Child:
    """A worker in a process of its own (worker_child.py), to be killed or frozen for real."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said: list[str] = []

    @classmethod
    async def start(cls, path: Path, role: str, **settings: Any) -> Self:
        """Start it and wait until its worker takes jobs."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(CHILD),
            str(path),
            role,
            json.dumps(settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        child = cls(process)
        await child.says("ready")
        return child

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def says(self, *words: str) -> str:
        """The next line that starts with one of these words."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while line := await self._process.stdout.readline():
                self.said.append(line.decode().strip())
                if self.said[-1].startswith(words):
                    return self.said[-1]
        raise AssertionError(f"the child ended without saying {words}; it said {self.said}")

    async def outlives(self, something: Coroutine[Any, Any, T]) -> T:
        """Its answer; AssertionError as soon as this process has died."""
        wanted = asyncio.ensure_future(something)
        death = asyncio.ensure_future(self._process.wait())
        await asyncio.wait({wanted, death}, return_when=asyncio.FIRST_COMPLETED)
        if not wanted.done():
            wanted.cancel()
            raise AssertionError(f"the child died with {death.result()}; it said {self.said}")
        death.cancel()
        return wanted.result()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def freeze(self, path: Path) -> None:
        """Stop it, but not during a write, which would block every other writer."""
        while True:
            self._process.send_signal(signal.SIGSTOP)
            while not self._stands_still():  # noqa: ASYNC110 - the kernel sends no event
                await asyncio.sleep(0.001)
            with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path)) as probe:
                probe.execute("PRAGMA busy_timeout = 0")
                probe.execute("BEGIN IMMEDIATE")
                return
            self.thaw()
            await asyncio.sleep(0.01)

    def _stands_still(self) -> bool:
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/stat")
        return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
