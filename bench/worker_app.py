"""The app that `bench.worker` gives to `outlast worker`; the environment names its file."""

import os

from outlast import Outlast

app = Outlast(f"sqlite:///{os.environ['OUTLAST_BENCH_FILE']}")


@app.job
async def noop(n: int) -> None:
    """Do nothing, so that only the worker is measured."""
