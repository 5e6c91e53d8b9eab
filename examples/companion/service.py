"""The app for `outlast worker companion.service:app`: the current folder's, or COMPANION_URL's."""

import os
from pathlib import Path
from typing import Final

from .companion import Companion

app: Final = Companion(Path(), os.environ.get("COMPANION_URL")).app
