"""Keeping the list of workers: who started, who stopped, who is forgotten."""

from outlast.core.run import Holder
from outlast.core.worker import WorkerInfo
from outlast.store.postgres.unit_of_work import Work
from outlast.store.rows import jobs as job_rows


async def enlist(work: Work, worker: WorkerInfo) -> None:
    info = job_rows.worker_info(worker)
    await work.run("worker.enlist", info=info, now=work.now, **who(worker.holder))


async def retire(work: Work, holder: Holder) -> None:
    await work.run("worker.retire", now=work.now, **who(holder))


async def forget_workers(work: Work, before: int) -> None:
    """Those that ended before that moment leave the list; their runs still name them."""
    await work.run("worker.forget", before=before, mono=work.mono)


def who(holder: Holder) -> dict[str, str]:
    """A worker as the statements name it."""
    return {"instance": holder.instance_id, "boot": holder.boot_id}
