"""The writing verbs of the contract: what each one does inside a transaction."""

from outlast.store.sqlite.operations.add import add
from outlast.store.sqlite.operations.apply import apply
from outlast.store.sqlite.operations.claim import ClaimRequest, claim
from outlast.store.sqlite.operations.documents import swap
from outlast.store.sqlite.operations.positions import renumber
from outlast.store.sqlite.operations.workers import beat, enlist, retire
from outlast.store.sqlite.verbs.footing import change_status
from outlast.store.sqlite.verbs.group import (
    add_group,
    expire_groups,
    seal_group,
    stop_group,
    sweep_groups,
)
from outlast.store.sqlite.verbs.loading import load
from outlast.store.sqlite.verbs.queue import pause, resume, set_queue
from outlast.store.sqlite.verbs.repair import remove_orphans
from outlast.store.sqlite.verbs.reservation import free_reservations, keep, reserve
from outlast.store.sqlite.verbs.schedule import ScheduleWrite, fire, set_schedule
from outlast.store.sqlite.verbs.upkeep import attach, promote, prune, renew, report

__all__ = [
    "ClaimRequest",
    "ScheduleWrite",
    "add",
    "add_group",
    "apply",
    "attach",
    "beat",
    "change_status",
    "claim",
    "enlist",
    "expire_groups",
    "fire",
    "free_reservations",
    "keep",
    "load",
    "pause",
    "promote",
    "prune",
    "remove_orphans",
    "renew",
    "renumber",
    "report",
    "reserve",
    "resume",
    "retire",
    "seal_group",
    "set_queue",
    "set_schedule",
    "stop_group",
    "swap",
    "sweep_groups",
]
