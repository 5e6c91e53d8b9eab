"""The writing verbs of the contract: what each one does inside a transaction."""

from holdfast.store.sqlite.verbs.add import add
from holdfast.store.sqlite.verbs.apply import apply
from holdfast.store.sqlite.verbs.claim import Wanted, claim
from holdfast.store.sqlite.verbs.place import normalise
from holdfast.store.sqlite.verbs.queue import pause, resume, set_queue
from holdfast.store.sqlite.verbs.record import swap
from holdfast.store.sqlite.verbs.repair import remove_orphans
from holdfast.store.sqlite.verbs.upkeep import attach, promote, prune, renew, report
from holdfast.store.sqlite.verbs.worker import beat, enlist, retire

__all__ = [
    "Wanted",
    "add",
    "apply",
    "attach",
    "beat",
    "claim",
    "enlist",
    "normalise",
    "pause",
    "promote",
    "prune",
    "remove_orphans",
    "renew",
    "report",
    "resume",
    "retire",
    "set_queue",
    "swap",
]
