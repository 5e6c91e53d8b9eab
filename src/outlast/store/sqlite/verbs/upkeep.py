"""The small writing verbs: renewing, reporting, attaching, promoting, pruning."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby

from outlast.core.duration import MICROSECOND
from outlast.core.limits import MAX_PROGRESS, is_storable
from outlast.core.run import Lease
from outlast.store.contract.jobs import Renewal
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations.workers import forget_workers
from outlast.store.sqlite.verbs.footing import require_open_store
from outlast.store.sqlite.writer import WriteTransaction


def renew(work: WriteTransaction, asked: Sequence[tuple[Lease, timedelta]]) -> list[Renewal]:
    """Neighbours that ask for the same span are renewed together."""
    renewals: list[Renewal] = []
    for span, group in groupby(asked, key=lambda item: item[1]):
        leases = to_json_param([(lease.job_id, lease.token) for lease, _ in group])
        work.run("runs.renew", leases=leases, until=work.mono + span // MICROSECOND)
        work.run("reservations.renew", leases=leases, now=work.now, mono=work.mono)
        held = dict(json.loads(work.one("runs.renewed", leases=leases)))
        count = len(json.loads(leases))
        renewals += [Renewal(n in held, bool(held.get(n))) for n in range(count)]
    return renewals


def report(work: WriteTransaction, asked: Sequence[tuple[Lease, str]]) -> list[bool]:
    """In rounds, since two reports of one run must not share a statement."""
    answers: list[bool] = []
    together: dict[Lease, str] = {}
    for lease, progress in asked:
        if lease in together:
            answers += _report(work, together)
            together = {}
        together[lease] = progress
    return answers + _report(work, together)


def attach(work: WriteTransaction, asked: Sequence[tuple[Lease, Sequence[str]]]) -> list[bool]:
    return [_attach(work, lease, artifacts) for lease, artifacts in asked]


@require_open_store
def promote(work: WriteTransaction, limits: Sequence[int]) -> list[int]:
    return [work.run("claim.promote", now=work.now, limit=limit).rowcount for limit in limits]


@require_open_store
def prune(work: WriteTransaction, asked: Sequence[tuple[timedelta, int]]) -> list[int]:
    return [_prune(work, older_than, limit) for older_than, limit in asked]


def _report(work: WriteTransaction, together: Mapping[Lease, str]) -> list[bool]:
    kept = [text if _is_progress(text) else "" for text in together.values()]
    pairs = zip(together, kept, strict=True)
    reports = to_json_param([(lease.job_id, lease.token, text) for lease, text in pairs])
    work.run("runs.report", reports=reports)
    taken = set(json.loads(work.one("runs.reported", reports=reports)))
    return [n in taken for n in range(len(together))]


def _is_progress(text: str) -> bool:
    return is_storable(text) and len(text.encode()) <= MAX_PROGRESS


def _attach(work: WriteTransaction, lease: Lease, artifacts: Sequence[str]) -> bool:
    values = {"id": lease.job_id, "token": lease.token, "artifacts": to_json_param(list(artifacts))}
    if work.run("runs.attach_open", **values).rowcount:
        return True
    return work.run("runs.attach_closed", **values).rowcount > 0


def _prune(work: WriteTransaction, older_than: timedelta, limit: int) -> int:
    work.run("claim.clear")
    before = work.now - older_than // MICROSECOND
    gone = 0
    if work.run("maintenance.pick", before=before, limit=limit).rowcount > 0:
        groups = work.one("maintenance.groups_of")
        work.run("reservations.prune")
        gone = work.run("maintenance.delete").rowcount
        if groups != "[]":
            work.run("maintenance.groups", groups=groups)
    work.run("maintenance.empty_groups", before=before)
    forget_workers(work, before, limit)
    return gone
