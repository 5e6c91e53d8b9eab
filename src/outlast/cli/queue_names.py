"""Queue names in commands: one that nothing uses is most likely misspelt."""

import click

from outlast.cli.command import CommandContext
from outlast.core.limits import check_name
from outlast.core.suggestion import did_you_mean
from outlast.errors import QueueNotFound
from outlast.store.contract.jobs import Filter

CREATE_HINT = " (--create accepts a new queue)"
CREATE = click.option("--create", is_flag=True, help="Accept a queue that is not used yet.")


async def require_queue(ctx: CommandContext, name: str, hint: str = "") -> None:
    """Raise QueueNotFound if no job, setting, job type or live worker uses this queue."""
    check_name(name, what="queue")
    known = await known_queues(ctx)
    if name not in known and not await ctx.app.store.find(Filter(queue=name), limit=1):
        raise QueueNotFound(
            f"no job, setting, job type or worker uses queue {name}; "
            f"{did_you_mean(name, known)}{hint}"
        )


async def known_queues(ctx: CommandContext) -> set[str]:
    """Return the queues of the app's types, those with settings, and those that are served."""
    saved = await ctx.app.store.queues()
    served = [worker.queues for worker in await ctx.app.store.workers() if worker.is_alive]
    return {
        *ctx.app.registry.queues(),
        *(queue.name for queue in saved),
        *(queue for queues in served for queue in queues),
    }
