"""Processes that start in a moment: forked from one that has imported all of it and opened nothing.

Spawned ones share no connection with anybody either, but each imports everything anew.
"""

import multiprocessing
from functools import cache
from multiprocessing.context import ForkServerContext
from typing import Final

_IMPORTED: Final = (
    "pytest",  # which is what a child takes for its main module
    "outlast.scheduler.trigger",
    "outlast.worker.embedded",
    "outlast.testing.conformance.shared",
    "outlast.testing.conformance.shared_queues",
    "outlast.testing.conformance.shared_records",
    "outlast.testing.conformance.shared_schedules",
    "outlast.testing.sqlite_bench",
    "outlast.store.postgres.store",
    "outlast.store.keyvalue.store",
    "outlast.store.keyvalue.dynamodb",
    "outlast.store.keyvalue.etcd",
)


@cache
def quick_start() -> ForkServerContext:
    """Where such processes, their pipes and their barriers come from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    return context
