"""What a supervised worker is asked to do, and what it answers when it ends."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Topology = Literal["pool", "single"]


class WorkerExit(IntEnum):
    """What `outlast worker` tells whoever started it."""

    OK = 0
    FAILED = 1  # with --burst, some job failed for good; or it was stopped in a hurry
    UNUSABLE = 2  # the app, an option or the store cannot work as they are
    IDENTITY_IN_USE = 3  # another worker has that identity or scope
    MOVED = 4  # its store was moved, and says where


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of `outlast worker`."""

    app: str
    queues: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    processes: int = 1
    concurrency: int | None = None
    burst: bool = False
    instance_id: str | None = None
    topology: Topology = "pool"
    scope: str = "default"
    max_jobs: int | None = None
    max_memory: int | None = None
    log_level: str = "info"
    log_format: str = "text"
