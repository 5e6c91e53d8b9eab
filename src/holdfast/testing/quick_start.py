"""Processes that start in a moment: forked from one that has imported all of it and opened nothing.

Spawned ones share no connection with anybody either, but each imports everything anew.
"""

import multiprocessing
from functools import cache
from multiprocessing.context import ForkServerContext
from typing import Final

_IMPORTED: Final = (
    "pytest",  # which is what a child takes for its main module
    "holdfast.scheduler.trigger",
    "holdfast.worker.embedded",
    "holdfast.testing.conformance.shared",
    "holdfast.testing.conformance.shared_queues",
    "holdfast.testing.conformance.shared_records",
    "holdfast.testing.conformance.shared_schedules",
    "holdfast.testing.sqlite_bench",
    "holdfast.store.postgres.store",
    "holdfast.store.keyvalue.store",
    "holdfast.store.keyvalue.dynamodb",
    "holdfast.store.keyvalue.etcd",
)


@cache
def quick_start() -> ForkServerContext:
    """Where such processes, their pipes and their barriers come from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    return context
