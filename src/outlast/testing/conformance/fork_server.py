"""Fork server for race tests: it has imported everything and opened nothing.

Spawned processes would share no connection either, but each would import everything anew.
"""

import multiprocessing
from functools import cache
from multiprocessing.context import ForkServerContext
from typing import Final

_IMPORTED: Final = (
    "pytest",  # which is what a child takes for its main module
    "outlast.scheduler.trigger",
    "outlast.worker.embedded",
    "outlast.testing.conformance.concurrency",
    "outlast.testing.conformance.concurrency_queues",
    "outlast.testing.conformance.concurrency_documents",
    "outlast.testing.conformance.concurrency_schedules",
    "outlast.testing.conformance.concurrency_windows",
    "outlast.store.sqlite.store",
    "outlast.store.postgres.store",
    "outlast.store.keyvalue.store",
    "outlast.store.keyvalue.engines.dynamodb.engine",
    "outlast.store.keyvalue.engines.etcd.engine",
)


@cache
def quick_start() -> ForkServerContext:
    """Return the context that starts such processes, their pipes and their barriers."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    return context
