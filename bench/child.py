"""One measurement in a separate process: `python -m bench.child huey drain FILE 20000`."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

ROOT = Path(__file__).resolve().parent.parent
SIDES = {"outlast": "bench.ours", "huey": "bench.peer"}
LIMIT = 900.0


class Side(Protocol):
    """Interface of a measured system; each method returns its figures by name."""

    def one(self, path: Path, jobs: int) -> dict[str, float]: ...
    def bulk(self, path: Path, jobs: int) -> dict[str, float]: ...
    def drain(self, path: Path, jobs: int) -> dict[str, float]: ...
    def latency(self, path: Path, jobs: int) -> dict[str, float]: ...
    def pragmas(self, path: Path) -> dict[str, Any]: ...


def measure(side: str, what: str, path: Path, jobs: int) -> dict[str, float]:
    """Run one measurement in a new process on that file and return its figures."""
    return _ask(side, what, str(path), str(jobs))


def pragmas(side: str, path: Path) -> dict[str, Any]:
    """Return the pragmas of the system's connections to that file."""
    return _ask(side, "pragmas", str(path))


def _ask(*words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.child", *words]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=False
    )
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(words)} failed; see its output above")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main() -> None:
    name, what, path, *jobs = sys.argv[1:]
    side = cast("Side", import_module(SIDES[name]))
    figures = getattr(side, what)(Path(path), *map(int, jobs))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
