"""The app that `outlast worker` is given; its address comes in the environment."""

import os

from bench.pg.sides.ours import make

URL = "OUTLAST_BENCH_URL"
app, noop = make(os.environ[URL])
