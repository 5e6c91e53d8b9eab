"""The app that `bench.worker` gives to `holdfast worker`; its file comes in the environment."""

import os

from holdfast import Holdfast

app = Holdfast(f"sqlite:///{os.environ['HOLDFAST_BENCH_FILE']}")


@app.job
async def noop(n: int) -> None:
    """Nothing, so that all that is measured is ours."""
