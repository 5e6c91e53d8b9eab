"""`outlast workers`: the registered workers, alive or not."""

from datetime import datetime

from outlast.cli.command import CommandContext, command
from outlast.cli.output import ago
from outlast.core.worker import WorkerRecord
from outlast.jobs.explanation import judged
from outlast.process_identity import proved_dead

NAMES_SHOWN = 5
COLUMNS = (
    "WORKER", "STATE", "HOST", ">PID", ">SLOTS", "STARTED", "HEARTBEAT", "QUEUES", "TYPES",
)  # fmt: skip


@command("workers")
async def workers_command(ctx: CommandContext, /) -> None:
    """List the workers of the store: what they serve, and their last heartbeat.

    A worker of this machine whose processes have ended is dead at once. Of a worker elsewhere only
    its heartbeat is known: it counts as alive until that is overdue.
    """
    workers = judged(await ctx.app.store.workers())
    if ctx.out.as_json:
        for each in workers:
            ctx.out.record(each)
        return
    now = await ctx.app.store.now()
    ctx.out.table(COLUMNS, [_row(each, now) for each in workers])
    if not any(each.is_alive for each in workers):
        app = ctx.where.app.value if ctx.where.app else "module:attribute"
        ctx.out.message(f"no worker is alive; start one: outlast worker {app}")


def _row(worker: WorkerRecord, now: datetime) -> tuple[str, ...]:
    return (
        worker.instance_id,
        _state(worker),
        worker.host,
        str(worker.pid),
        str(worker.capacity),
        f"{ago(worker.started_at, now)} ago",
        f"{ago(worker.seen_at, now)} ago",
        _names(worker.queues),
        _names(worker.types),
    )


def _state(worker: WorkerRecord) -> str:
    if worker.is_alive:
        return "alive"
    if worker.stopped_at is not None:
        return "stopped"
    return "dead" if proved_dead([worker.boot_id]) else "no heartbeat"


def _names(names: tuple[str, ...]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
