"""The app that `holdfast worker` is given; its address comes in the environment."""

import os

from bench.pg.sides.ours import make

URL = "HOLDFAST_BENCH_URL"
app, noop = make(os.environ[URL])
