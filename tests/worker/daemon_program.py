"""A program that starts a daemon as daemons are started: twice forked, in a session of its own.

    python daemon_program.py MARK SECONDS

The daemon has a child in another session. Both leave their numbers in MARK; then the program
sleeps.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def main(mark: Path, seconds: float) -> None:
    if not os.fork():
        os.setsid()
        if not os.fork():
            be_a_daemon(mark)
        os._exit(0)
    os.wait()
    while not mark.exists():
        time.sleep(0.01)
    time.sleep(seconds)


def be_a_daemon(mark: Path) -> None:
    child = subprocess.Popen(SLEEP, start_new_session=True)
    half = mark.with_suffix(".half")
    half.write_text(f"{os.getpid()} {child.pid}")
    half.replace(mark)
    child.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
