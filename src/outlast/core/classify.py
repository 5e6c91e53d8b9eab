"""Which errors are worth another try."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from outlast.errors import InvalidParams, PayloadTooLarge, PermanentError, TransientError


class ErrorClass(StrEnum):
    """What an error says about trying again."""

    TRANSIENT = "transient"  # it may pass: retry
    PERMANENT = "permanent"  # it will not: close at once


ErrorMap = Mapping[type[BaseException], ErrorClass]

DECISIONS: ErrorMap = MappingProxyType(
    {
        PermanentError: ErrorClass.PERMANENT,
        InvalidParams: ErrorClass.PERMANENT,
        PayloadTooLarge: ErrorClass.PERMANENT,
        TransientError: ErrorClass.TRANSIENT,
    }
)
"""Errors that say themselves what they are."""

GUESSES: ErrorMap = MappingProxyType(
    {TimeoutError: ErrorClass.TRANSIENT, ConnectionError: ErrorClass.TRANSIENT}
)
"""Errors that usually pass, unless a type knows better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """What a handler decides, or its type maps, whichever names the error's class more exactly;
    then what is usual; then the default for the unknown."""

    errors: ErrorMap = field(default_factory=dict)
    unknown: ErrorClass = ErrorClass.TRANSIENT

    def verdict(self, error: BaseException) -> ErrorClass:
        kinds = type(error).__mro__  # the most specific class first
        told = (self.errors.get(kind) or DECISIONS.get(kind) for kind in kinds)
        guessed = (GUESSES.get(kind) for kind in kinds)
        return next(filter(None, (*told, *guessed)), self.unknown)
