"""Keeping the list of workers: who started, who was seen, who stopped."""

from collections.abc import Sequence
from datetime import timedelta

from outlast.core.duration import MICROSECOND
from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite.writer import WriteTransaction


def enlist(work: WriteTransaction, workers: Sequence[WorkerInfo]) -> list[None]:
    for worker in workers:
        info = job_rows.worker_info(worker)
        work.run("workers.enlist", info=info, now=work.now, **_who(worker.holder))
    return [None] * len(workers)


def beat(work: WriteTransaction, beats: Sequence[tuple[LeaseHolder, timedelta]]) -> list[bool]:
    return [_beat(work, holder, span) for holder, span in beats]


def retire(work: WriteTransaction, holders: Sequence[LeaseHolder]) -> list[None]:
    for holder in holders:
        work.run("workers.retire", now=work.now, **_who(holder))
    return [None] * len(holders)


def forget_workers(work: WriteTransaction, before: int, limit: int) -> None:
    """Those that ended before that moment; their rows go too once no run points at them."""
    work.run("workers.forget", before=before, mono=work.mono)
    work.run("workers.delete", limit=limit)


def _beat(work: WriteTransaction, holder: LeaseHolder, span: timedelta) -> bool:
    until = work.mono + span // MICROSECOND
    return work.run("workers.beat", now=work.now, until=until, **_who(holder)).rowcount > 0


def _who(holder: LeaseHolder) -> dict[str, str]:
    return {"instance": holder.instance_id, "boot": holder.boot_id}
