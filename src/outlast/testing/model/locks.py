"""How the model store keeps its locks: who holds which name, and whether they share it."""

from outlast.core.limits import check_name

Held = dict[str, list["ModelLock"]]


class ModelLock:
    """One of those who hold a name, until it is released."""

    def __init__(self, held: Held, name: str, *, shared: bool) -> None:
        self._held = held
        self._name = name
        self.is_shared = shared
        held.setdefault(name, []).append(self)

    @property
    def is_lost(self) -> bool:
        return False

    async def release(self) -> None:
        holders = self._held.get(self._name, [])
        if self in holders:
            holders.remove(self)
            if not holders:
                del self._held[self._name]


def take(held: Held, name: str, *, shared: bool) -> ModelLock | None:
    """Hold the name too; None if somebody holds it who does not share it, or we would not."""
    holders = held.get(check_name(name, what="lock name"), [])
    if any(not (shared and each.is_shared) for each in holders):
        return None
    return ModelLock(held, name, shared=shared)
