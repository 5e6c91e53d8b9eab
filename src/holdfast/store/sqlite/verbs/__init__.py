"""The writing verbs of the contract: what each one does inside a transaction."""

from holdfast.store.sqlite.verbs.add import add
from holdfast.store.sqlite.verbs.apply import apply
from holdfast.store.sqlite.verbs.claim import Wanted, claim
from holdfast.store.sqlite.verbs.repair import remove_orphans
from holdfast.store.sqlite.verbs.upkeep import attach, promote, prune, renew, set_queue

__all__ = [
    "Wanted",
    "add",
    "apply",
    "attach",
    "claim",
    "promote",
    "prune",
    "remove_orphans",
    "renew",
    "set_queue",
]
