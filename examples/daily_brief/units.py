"""The two systemd services: `python -m daily_brief.units --to /etc/systemd/system`."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

WEB: Final = "k2dailybrief-web"
WORKER: Final = "k2dailybrief-worker"
FOLDER: Final = "/srv/k2dailybrief"
CODE: Final = "/srv/k2dailybrief/app"
PYTHON: Final = "/srv/k2dailybrief/venv/bin/python"
USER: Final = "k2dailybrief"

COMMON: Final = """\
User={user}
WorkingDirectory={folder}
Environment=PYTHONPATH={code}
Restart=always
RestartSec=2
NoNewPrivileges=true
PrivateTmp=true
ProtectSystem=strict
ReadWritePaths={folder}
"""

WEB_UNIT: Final = """\
[Unit]
Description={web}: pages of the daily brief; runs no jobs
After=network.target

[Service]
ExecStart={python} -m gunicorn --workers 2 --bind 127.0.0.1:8000 daily_brief.web:application
{common}
[Install]
WantedBy=multi-user.target
"""

WORKER_UNIT: Final = """\
[Unit]
Description={worker}: the one process that runs the jobs and schedules of the daily brief
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={python} -m outlast worker daily_brief.worker:app \
--instance-id {worker} --log-format json
{common}# Its jobs have a grace of 30 s to end. A second worker, or a bad setting, is not retried.
TimeoutStopSec=45
KillMode=mixed
RestartPreventExitStatus=2 3

[Install]
WantedBy=multi-user.target
"""


def units(
    *,
    web: str = WEB,
    worker: str = WORKER,
    folder: str = FOLDER,
    code: str = CODE,
    python: str = PYTHON,
    user: str = USER,
) -> dict[str, str]:
    """Return the text of each unit by file name; ValueError if a name is invalid."""
    for name in (web, worker, user):
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
            raise ValueError(f"{name!r} cannot name a service; use 1 to 64 of A-Z a-z 0-9 _ . -")
    if web == worker:
        raise ValueError(f"both services are called {web}; give one another name")
    common = COMMON.format(user=user, folder=folder, code=code)
    words = {"web": web, "worker": worker, "python": python, "common": common}
    return {
        f"{web}.service": WEB_UNIT.format(**words),
        f"{worker}.service": WORKER_UNIT.format(**words),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m daily_brief.units", description=__doc__)
    parser.add_argument("--to", type=Path, required=True, help="the folder for the two files")
    parser.add_argument("--web", default=WEB)
    parser.add_argument("--worker", default=WORKER)
    parser.add_argument("--folder", default=FOLDER, help="of brief.toml and brief.db")
    parser.add_argument("--code", default=str(Path(__file__).parents[1]), help="of daily_brief")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--user", default=USER)
    asked = vars(parser.parse_args(argv))
    to: Path = asked.pop("to")
    to.mkdir(parents=True, exist_ok=True)
    for name, text in units(**asked).items():
        (to / name).write_text(text, encoding="utf-8")
        print(to / name)


if __name__ == "__main__":
    main()
