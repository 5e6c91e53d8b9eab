"""The app of the workers of `python -m bench due`."""

import os

from bench.due import URL, register
from outlast import Outlast

app = Outlast(os.environ[URL])
register(app)
