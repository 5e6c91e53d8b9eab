"""Measured figures as values: a row per figure, a column per side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from bench.figures import Series
from bench.pg.sides import OURS, PEERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure: each side's value in every round; a side that was not measured has none."""

    label: str
    unit: str
    values: Mapping[str, Sequence[float]]
    asked: str = ""
    digits: int = 0
    low_is_good: bool = False

    def series(self, side: str) -> Series | None:
        values = self.values.get(side)
        return Series(values) if values else None

    def ratio(self, peer: str, side: str = OURS) -> Series | None:
        """How many times better `side` is than that peer; below one means worse."""
        ours, theirs = self.series(side), self.series(peer)
        if ours is None or theirs is None or not all((*ours.values, *theirs.values)):
            return None
        return theirs.over(ours) if self.low_is_good else ours.over(theirs)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Self:
        return cls(**found)


def lost(rows: Sequence[Row]) -> Iterator[tuple[Row, str, Series]]:
    """Where a peer is better than we are, by how much."""
    for row in rows:
        for peer in PEERS:
            ratio = row.ratio(peer)
            if ratio is not None and ratio.middle < 1:
                yield row, peer, ratio
