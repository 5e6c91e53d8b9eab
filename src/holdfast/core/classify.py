"""Which errors are worth another try."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from holdfast.errors import InvalidParams, PayloadTooLarge, PermanentError, TransientError


class Verdict(StrEnum):
    """What an error says about trying again."""

    TRANSIENT = "transient"  # it may pass: retry
    PERMANENT = "permanent"  # it will not: close at once


ErrorMap = Mapping[type[BaseException], Verdict]

BUILT_IN: ErrorMap = MappingProxyType(
    {
        PermanentError: Verdict.PERMANENT,
        InvalidParams: Verdict.PERMANENT,
        PayloadTooLarge: Verdict.PERMANENT,
        TransientError: Verdict.TRANSIENT,
        TimeoutError: Verdict.TRANSIENT,
        ConnectionError: Verdict.TRANSIENT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """A type's own map first, then the built-in one, then the default for the unknown."""

    errors: ErrorMap = field(default_factory=dict)
    unknown: Verdict = Verdict.TRANSIENT

    def verdict(self, error: BaseException) -> Verdict:
        for kind in type(error).__mro__:  # the most specific class that is known decides
            found = self.errors.get(kind) or BUILT_IN.get(kind)
            if found is not None:
                return found
        return self.unknown
