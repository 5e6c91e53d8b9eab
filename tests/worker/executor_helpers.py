"""What the executors' tests share: processes that leave word of themselves, and a look at them."""

from pathlib import Path
from typing import Any

from worker_helpers import until

from outlast import Handle, Outlast
from outlast.core.run import RunRecord

LONG = "120s"
"""A process must start and import the app first, on a busy machine."""


async def run(app: Outlast, name: str, *args: Any) -> Handle[Any]:
    """Enqueue a job of that type."""
    return await app.registry.get(name).enqueue(*args)


async def first_run(app: Outlast, handle: Handle[Any]) -> RunRecord:
    return (await app.runs(handle.id))[0]


async def word(path: Path) -> list[int]:
    """The process numbers that a handler left there, once it has."""
    await until(path.exists)
    return [int(number) for number in text_of(path).split()]


async def gone(*pids: int) -> None:
    """Wait until none of these processes is alive."""
    await until(lambda: not any(map(is_alive, pids)))


def is_alive(pid: int) -> bool:
    try:
        return _stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def text_of(path: Path | str, encoding: str = "utf-8") -> str:
    return Path(path).read_text(encoding)


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
