"""Named locks of the model store."""

from outlast.core.limits import check_name

Held = dict[str, list["ModelLock"]]


class ModelLock:
    """A holder of a lock, until it is released."""

    def __init__(self, held: Held, name: str, *, shared: bool) -> None:
        self._held = held
        self._name = name
        self.is_shared = shared
        held.setdefault(name, []).append(self)

    @property
    def is_lost(self) -> bool:
        """False: no other process can take it."""
        return False

    async def release(self) -> None:
        """Release the lock; idempotent."""
        holders = self._held.get(self._name, [])
        if self in holders:
            holders.remove(self)
            if not holders:
                del self._held[self._name]


def take(held: Held, name: str, *, shared: bool) -> ModelLock | None:
    """Acquire the lock; return None if a holder excludes it."""
    holders = held.get(check_name(name, what="lock name"), [])
    if any(not (shared and each.is_shared) for each in holders):
        return None
    return ModelLock(held, name, shared=shared)
