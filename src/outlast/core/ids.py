"""Ids: version 7 UUIDs, which sort by the time they were made."""

from collections.abc import Callable
from datetime import datetime
from typing import Final, NewType

JobId = NewType("JobId", str)
RunId = NewType("RunId", str)

BATCH: Final = 0x1000000
"""How many ids one prefix can number."""


class Ids:
    """Makes ids from a clock and random bits handed in.

    It keeps no state of its own: a process that forks, or two threads, never make one id twice.
    """

    def __init__(self, now: Callable[[], datetime], bits: Callable[[int], int]) -> None:
        self._now = now
        self._bits = bits

    def job(self) -> JobId:
        bits = self._bits(74)
        return JobId(f"{self._head(bits >> 24)}{bits & 0xFFFFFF:06x}")

    def jobs(self, count: int) -> list[JobId]:
        """That many ids at the price of one draw per sixteen million."""
        return [
            JobId(text) for start in range(0, count, BATCH) for text in self._run(count - start)
        ]

    def _run(self, count: int) -> list[str]:
        prefix = self.prefix()
        return [f"{prefix}{number:06x}" for number in range(min(count, BATCH))]

    def prefix(self) -> str:
        """All but the last six digits of a UUID; the caller numbers them from 000000."""
        return self._head(self._bits(50))

    def _head(self, bits: int) -> str:
        millis = int(self._now().timestamp() * 1000) & 0xFFFFFFFFFFFF
        head = f"{millis:012x}"
        middle = f"7{bits >> 38:03x}-{0x8000 | (bits >> 24) & 0x3FFF:04x}"
        return f"{head[:8]}-{head[8:]}-{middle}-{bits & 0xFFFFFF:06x}"
