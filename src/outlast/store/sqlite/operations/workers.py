"""Keeping the list of workers: who started, who was seen, who stopped."""

from collections.abc import Sequence
from datetime import timedelta

from outlast.core.duration import MICROSECOND
from outlast.core.run import Holder
from outlast.core.worker import WorkerInfo
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite.writer import Work


def enlist(work: Work, workers: Sequence[WorkerInfo]) -> list[None]:
    for worker in workers:
        info = job_rows.worker_info(worker)
        work.run("worker.enlist", info=info, now=work.now, **_who(worker.holder))
    return [None] * len(workers)


def beat(work: Work, beats: Sequence[tuple[Holder, timedelta]]) -> list[bool]:
    return [_beat(work, holder, span) for holder, span in beats]


def retire(work: Work, holders: Sequence[Holder]) -> list[None]:
    for holder in holders:
        work.run("worker.retire", now=work.now, **_who(holder))
    return [None] * len(holders)


def forget_workers(work: Work, before: int, limit: int) -> None:
    """Those that ended before that moment; their rows go too once no run points at them."""
    work.run("worker.forget", before=before, mono=work.mono)
    work.run("worker.delete", limit=limit)


def _beat(work: Work, holder: Holder, span: timedelta) -> bool:
    until = work.mono + span // MICROSECOND
    return work.run("worker.beat", now=work.now, until=until, **_who(holder)).rowcount > 0


def _who(holder: Holder) -> dict[str, str]:
    return {"instance": holder.instance_id, "boot": holder.boot_id}
