"""The same app, whose module listens: what it hears goes to a file, a line for each event."""

import json
import os
from pathlib import Path

from outlast.telemetry import TelemetryEvent, subscribe

from .worker_app import app

__all__ = ["app"]


def _note(told: TelemetryEvent) -> None:
    line = json.dumps({"event": told.event, "heard_by": os.getpid(), **told.fields})
    with (Path(os.environ["CHAOS_FOLDER"]) / "told.jsonl").open("a") as file:
        file.write(line + "\n")


subscribe(_note)
