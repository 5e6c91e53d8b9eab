"""The worker's process: the brief of the current folder, whose errors are logged in full."""

import logging
import os
from pathlib import Path
from typing import Final

from outlast.telemetry import log_full_errors, subscribe

from .brief import Brief
from .job_runs import add_job_name
from .rules import rules_of

app: Final = Brief(Path(), rules=rules_of(os.environ)).app
"""For `outlast worker daily_brief.worker:app`."""

# S0 11: errors are logged. A handler's words may quote what it was given; here that is news.
subscribe(log_full_errors(logging.getLogger("daily_brief")))
logging.getLogger("outlast.jobs").addFilter(add_job_name)
