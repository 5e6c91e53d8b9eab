"""`outlast worker`: drain compared with the embedded worker, pick-up, cost when idle.

Rates and delays are read from the stored runs, so that starting processes is not in them.
"""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median, quantiles

WORKER = ["-c", "from outlast.cli.main import main; main()", "worker", "bench.worker_app:app"]
QUIET = ["--log-level", "warning"]
IDLE_SECONDS = 10
TICKS = os.sysconf("SC_CLK_TCK")


def measure(folder: Path, *, jobs: int, picks: int, rounds: int) -> list[str]:
    """Return the figures, one per line; the drains alternate, so that load affects both."""
    ratios, ours, embedded = [], [], []
    for number in range(rounds):
        embedded.append(_embedded(folder / f"embedded-{number}.db", jobs))
        ours.append(_supervised(folder / f"supervised-{number}.db", jobs))
        ratios.append(ours[-1] / embedded[-1])
    delays = _pick_up(folder / "pick.db", picks)
    share, memory = _idle(folder / "idle.db")
    p99 = quantiles(delays, n=100)[98]
    return [
        f"drain, supervised: {median(ours):,.0f} jobs/s; embedded: {median(embedded):,.0f} jobs/s",
        f"drain, ratio of the two: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        f"pick-up between processes: p50 {median(delays):.2f} ms, p99 {p99:.2f} ms",
        f"idle: {share:.2f} % of a core, {memory / 1024:.1f} MiB private in all its processes",
    ]


def _embedded(path: Path, jobs: int) -> float:
    _fill(path, jobs)
    _python(path, "import bench.worker as w; w.drain_here()")
    return _rate(path)


def drain_here() -> None:
    """Run the embedded worker until all jobs are done, in a separate process."""
    from bench.worker_app import app  # noqa: PLC0415 - it reads the environment

    async def main() -> None:
        async with app, app.worker() as worker:
            await worker.drained()

    asyncio.run(main())


def _supervised(path: Path, jobs: int) -> float:
    _fill(path, jobs)
    subprocess.run([sys.executable, *WORKER, "--burst", *QUIET], env=_env(path), check=True)
    return _rate(path)


def _fill(path: Path, jobs: int) -> None:
    _python(path, f"import bench.worker as w; w.fill_here({jobs})")


def fill_here(jobs: int) -> None:
    """Enqueue jobs, in a separate process."""
    from bench.worker_app import app, noop  # noqa: PLC0415 - it reads the environment

    async def main() -> None:
        async with app:
            await app.enqueue_many(noop.bind(n) for n in range(jobs))

    asyncio.run(main())


def _pick_up(path: Path, picks: int) -> list[float]:
    with _idle_worker(path):
        _python(path, f"import bench.worker as w; w.pick_here({picks})")
    delays = _query(
        path,
        "SELECT r.started_at - j.created_at FROM outlast_runs AS r"
        " JOIN outlast_jobs AS j ON j.seq = r.job",
    )
    return [delay / 1000 for (delay,) in delays]


def pick_here(picks: int) -> None:
    """Enqueue single jobs, each when the worker is idle again, in a separate process."""
    from bench.worker_app import app, noop  # noqa: PLC0415 - it reads the environment

    async def main() -> None:
        async with app:
            for n in range(picks):
                await (await noop.enqueue(n)).wait("10s")
                await asyncio.sleep(0.01)

    asyncio.run(main())


def _idle(path: Path) -> tuple[float, int]:
    with _idle_worker(path) as pids:
        before = sum(map(_ticks, pids))
        time.sleep(IDLE_SECONDS)
        used = sum(map(_ticks, pids)) - before
        memory = sum(map(_private, pids))
    return 100 * used / TICKS / IDLE_SECONDS, memory


@contextmanager
def _idle_worker(path: Path) -> Iterator[list[int]]:
    """Run an idle worker; yield its process ids, the supervisor first."""
    worker = subprocess.Popen([sys.executable, *WORKER, *QUIET], env=_env(path))
    try:
        while not _has_begun(path):
            time.sleep(0.1)
        time.sleep(1)
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        yield [worker.pid, *map(int, children)]
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(40)


def _has_begun(path: Path) -> bool:
    try:
        return bool(_query(path, "SELECT 1 FROM outlast_workers WHERE started_at IS NOT NULL"))
    except sqlite3.OperationalError:
        return False


def _rate(path: Path) -> float:
    [(count, first, last)] = _query(
        path, "SELECT count(*), min(started_at), max(finished_at) FROM outlast_runs"
    )
    return float(count / ((last - first) / 1e6))


def _query(path: Path, sql: str) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def _python(path: Path, program: str) -> None:
    subprocess.run([sys.executable, "-c", program], env=_env(path), check=True)


def _env(path: Path) -> dict[str, str]:
    paths = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    return {**os.environ, "OUTLAST_BENCH_FILE": str(path), "PYTHONPATH": paths}


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _private(pid: int) -> int:
    """Return the private memory in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
