"""Outlast as `outlast worker` with its processes."""

import sys

from bench.pg.sides.ours import FINISH, IS_LEFT, client, install, work

__all__ = ["COMMAND", "FINISH", "IS_LEFT", "client", "install", "work"]

COMMAND = [sys.executable, "-m", "outlast", "worker", "bench.pg.app:app", "--log-level=warning"]
