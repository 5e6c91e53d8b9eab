"""Classify errors as transient or permanent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from outlast.errors import InvalidParams, PayloadTooLarge, PermanentError, TransientError


class ErrorClass(StrEnum):
    """Whether a retry can help after an error."""

    TRANSIENT = "transient"  # retry
    PERMANENT = "permanent"  # end the job without another attempt


ErrorMap = Mapping[type[BaseException], ErrorClass]

OWN_CLASSES: ErrorMap = MappingProxyType(
    {
        PermanentError: ErrorClass.PERMANENT,
        InvalidParams: ErrorClass.PERMANENT,
        PayloadTooLarge: ErrorClass.PERMANENT,
        TransientError: ErrorClass.TRANSIENT,
    }
)
"""Errors whose class states whether a retry can help."""

DEFAULT_CLASSES: ErrorMap = MappingProxyType(
    {TimeoutError: ErrorClass.TRANSIENT, ConnectionError: ErrorClass.TRANSIENT}
)
"""Errors that are transient unless a job type maps them otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """Classifies errors for one job type.

    The most specific class of the error wins, among the type's own map and `OWN_CLASSES`. Then
    `DEFAULT_CLASSES` applies, then `unknown`.

    Attributes:
        errors: Map of the job type from error class to its classification.
        unknown: Classification of an error that no map names.
    """

    errors: ErrorMap = field(default_factory=dict)
    unknown: ErrorClass = ErrorClass.TRANSIENT

    def classify(self, error: BaseException) -> ErrorClass:
        """Return whether the error is transient or permanent."""
        kinds = type(error).__mro__  # the most specific class first
        mapped = (self.errors.get(kind) or OWN_CLASSES.get(kind) for kind in kinds)
        usual = (DEFAULT_CLASSES.get(kind) for kind in kinds)
        return next(filter(None, (*mapped, *usual)), self.unknown)
