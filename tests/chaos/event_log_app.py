"""The worker app with a telemetry sink that writes each event as a line to a file."""

import json
import os
from pathlib import Path

from outlast.telemetry import TelemetryEvent, subscribe

from .worker_app import app

__all__ = ["app"]


def _note(event: TelemetryEvent) -> None:
    line = json.dumps({"event": event.event, "heard_by": os.getpid(), **event.fields})
    with (Path(os.environ["CHAOS_FOLDER"]) / "events.jsonl").open("a") as file:
        file.write(line + "\n")


subscribe(_note)
