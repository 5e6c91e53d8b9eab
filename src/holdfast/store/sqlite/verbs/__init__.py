"""The writing verbs of the contract: what each one does inside a transaction."""

from holdfast.store.sqlite.verbs.add import add
from holdfast.store.sqlite.verbs.apply import apply
from holdfast.store.sqlite.verbs.claim import Wanted, claim
from holdfast.store.sqlite.verbs.footing import stand
from holdfast.store.sqlite.verbs.group import (
    add_group,
    expire_groups,
    seal_group,
    stop_group,
    sweep_groups,
)
from holdfast.store.sqlite.verbs.loading import load
from holdfast.store.sqlite.verbs.place import normalise
from holdfast.store.sqlite.verbs.queue import pause, resume, set_queue
from holdfast.store.sqlite.verbs.record import swap
from holdfast.store.sqlite.verbs.repair import remove_orphans
from holdfast.store.sqlite.verbs.reservation import free_reservations, keep, reserve
from holdfast.store.sqlite.verbs.schedule import Setting, fire, set_schedule
from holdfast.store.sqlite.verbs.upkeep import attach, promote, prune, renew, report
from holdfast.store.sqlite.verbs.worker import beat, enlist, retire

__all__ = [
    "Setting",
    "Wanted",
    "add",
    "add_group",
    "apply",
    "attach",
    "beat",
    "claim",
    "enlist",
    "expire_groups",
    "fire",
    "free_reservations",
    "keep",
    "load",
    "normalise",
    "pause",
    "promote",
    "prune",
    "remove_orphans",
    "renew",
    "report",
    "reserve",
    "resume",
    "retire",
    "seal_group",
    "set_queue",
    "set_schedule",
    "stand",
    "stop_group",
    "swap",
    "sweep_groups",
]
