"""The app that `bench.start` gives to `outlast worker`: one job that does nothing."""

import os

from outlast import Outlast

app = Outlast(os.environ["OUTLAST_BENCH_URL"])


@app.job
async def noop() -> None:
    """Do nothing, so that only the start is measured."""
