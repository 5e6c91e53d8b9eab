"""The app that `bench.intervals` gives to `outlast worker`: one declared schedule."""

import os

from outlast import Outlast, Settings

NAME = "interval"

settings = Settings()
if "OUTLAST_BENCH_POLL" in os.environ:
    settings = Settings(poll=os.environ["OUTLAST_BENCH_POLL"])
app = Outlast(os.environ["OUTLAST_BENCH_URL"], settings=settings)


@app.job
async def tick() -> None:
    """Do nothing, so that only the trigger is measured."""


every = os.environ["OUTLAST_BENCH_EVERY"]
app.schedule(NAME, None, tick, every=every, coalesce=True, misfire_grace="5m")
