"""Bringing a store that is there up to what a new one has, where opening it does not."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Migratable(Protocol):
    """A store, or what it is built on, with something that only `db migrate` does: whoever works
    with it needs no right to that."""

    async def migrate(self) -> None:
        """Harmless when all is as it should be."""
        ...
