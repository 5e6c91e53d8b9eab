"""Values that are made by the thousand: frozen for whoever writes code, plain when it runs."""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def fast_frozen(cls: type[T]) -> type[T]:
    """A frozen dataclass at a fifth of its price; for what is made with every job.

    The real thing sets each field by a call, at every start of a worker's hottest loop. Here the
    type checker alone refuses an assignment, and it looks at all of this package.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
