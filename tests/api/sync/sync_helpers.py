"""What the tests of the synchronous bridge share."""

import gc
import threading
import warnings


async def drained(app):
    async with app.worker() as worker:
        await worker.drained()


def threads():
    return [each for each in threading.enumerate() if each.name == "outlast-sync"]


def never_awaited(function):
    """Whether a coroutine was thrown away while that was called."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
        gc.collect()
    return [str(each.message) for each in caught if "never awaited" in str(each.message)]
