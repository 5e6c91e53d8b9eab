"""How the model store keeps its locks: a set of names."""

from holdfast.core.limits import check_name


class ModelHold:
    """A name in a set, until it is released."""

    def __init__(self, held: set[str], name: str) -> None:
        self._held = held
        self._name: str | None = name

    @property
    def is_lost(self) -> bool:
        return False

    async def release(self) -> None:
        if self._name is not None:
            self._held.discard(self._name)
            self._name = None


def take(held: set[str], name: str) -> ModelHold | None:
    """Put the name in the set; None if it is there already."""
    if check_name(name, what="lock name") in held:
        return None
    held.add(name)
    return ModelHold(held, name)
