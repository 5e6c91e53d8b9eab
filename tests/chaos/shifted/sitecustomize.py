"""A machine whose wall clock is set: every process adds the seconds in a file."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from outlast.clock import SystemClock


def now(_: SystemClock) -> datetime:
    by = float(Path(os.environ["CHAOS_SHIFT"]).read_text())
    return datetime.now(UTC) + timedelta(seconds=by)


SystemClock.now = now
