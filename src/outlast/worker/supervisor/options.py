"""Options and exit codes of the worker command."""

from dataclasses import dataclass, replace
from enum import IntEnum

from outlast.config import Settings, Topology


class WorkerExit(IntEnum):
    """Exit codes of `outlast worker`."""

    OK = 0
    FAILED = 1  # with --burst a job failed for good; or a second signal forced the stop
    UNUSABLE = 2  # the app, an option or the store is unusable
    IDENTITY_IN_USE = 3  # another worker has the instance id or scope
    MOVED = 4  # the store was moved; the log says where


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
    topology: Topology | None = None  # None: the app's
    scope: str | None = None  # None: the app's
    max_jobs: int | None = None
    max_memory: int | None = None
    log_level: str = "info"
    log_format: str = "text"

    def with_app(self, settings: Settings) -> "WorkerOptions":
        """Return the options completed by the app's; a single app has no other workers."""
        is_single = "single" in {self.topology, settings.topology}
        topology: Topology = "single" if is_single else "pool"
        return replace(self, topology=topology, scope=self.scope or settings.scope)
