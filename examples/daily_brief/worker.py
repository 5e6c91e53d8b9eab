"""The worker's process: the brief of the current folder, whose errors are logged in full."""

import logging
from pathlib import Path
from typing import Final

from outlast.telemetry import errors_in_full, listen

from .brief import Brief

app: Final = Brief(Path()).app
"""For `outlast worker daily_brief.worker:app`."""

# S0 11: errors are logged. A handler's words may quote what it was given; here that is news.
listen(errors_in_full(logging.getLogger("daily_brief")))
