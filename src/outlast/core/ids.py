"""Ids: version 7 UUIDs, which sort by creation time."""

from collections.abc import Callable
from datetime import datetime
from typing import Final, NewType

JobId = NewType("JobId", str)
RunId = NewType("RunId", str)

BATCH: Final = 0x1000000
"""Ids that one prefix can number."""


class Ids:
    """Makes ids from a clock and a source of random bits.

    It has no state: forked processes and threads never produce the same id.
    """

    def __init__(self, now: Callable[[], datetime], bits: Callable[[int], int]) -> None:
        self._now = now
        self._bits = bits

    def job(self) -> JobId:
        """Return a new job id."""
        bits = self._bits(74)
        return JobId(f"{self._head(bits >> 24)}{bits & 0xFFFFFF:06x}")

    def jobs(self, count: int) -> list[JobId]:
        """Return `count` new job ids that share a prefix; one random draw per 16 million ids."""
        return [
            JobId(text) for start in range(0, count, BATCH) for text in self._run(count - start)
        ]

    def _run(self, count: int) -> list[str]:
        prefix = self.prefix()
        return [f"{prefix}{number:06x}" for number in range(min(count, BATCH))]

    def prefix(self) -> str:
        """Return a UUID without its last six digits; the caller numbers them from 000000."""
        return self._head(self._bits(50))

    def _head(self, bits: int) -> str:
        millis = int(self._now().timestamp() * 1000) & 0xFFFFFFFFFFFF
        head = f"{millis:012x}"
        middle = f"7{bits >> 38:03x}-{0x8000 | (bits >> 24) & 0x3FFF:04x}"
        return f"{head[:8]}-{head[8:]}-{middle}-{bits & 0xFFFFFF:06x}"
