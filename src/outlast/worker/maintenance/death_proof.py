"""Which free locks prove that the process that held them is dead."""

from collections.abc import Iterable

from outlast.process_identity import proved_dead
from outlast.store.contract import Capability, HasCapabilities


def decisive_locks(store: HasCapabilities, names: Iterable[str]) -> frozenset[str]:
    """Return the names whose lock, once it is free, proves that its process is dead.

    A kernel lock always does. Any other lock is free whenever its connection broke: there the
    operating system must prove the death too, and without that proof only the lease decides.
    """
    if Capability.KERNEL_LOCKS in store.capabilities:
        return frozenset(names)
    return proved_dead(names)
