"""Outcomes of a call that takes several transactions, of which some may fail."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from outlast.errors import OperatorError, StoreBusy, StoreCorrupt, StoreFull

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class FailedItem:
    """An item without an answer: its transaction raised `error`, or was not sent after it.

    It may have been written: the reply may be lost.
    """

    error: Exception


def each_of(
    items: Sequence[object], outcome: Sequence[Answer | FailedItem] | FailedItem
) -> list[Answer | FailedItem]:
    """Return the outcome of each item of a transaction of several."""
    return [outcome] * len(items) if isinstance(outcome, FailedItem) else list(outcome)


def succeeded(outcomes: Iterable[Answer | FailedItem]) -> list[Answer]:
    """Return the answers, without the failures."""
    return [outcome for outcome in outcomes if not isinstance(outcome, FailedItem)]


def failure(outcomes: Iterable[object]) -> Exception | None:
    """Return the first error that is no OperatorError, else the first error, else None."""
    errors = [outcome.error for outcome in outcomes if isinstance(outcome, FailedItem)]
    return min(errors, key=lambda error: isinstance(error, OperatorError), default=None)


def concerns_store(error: Exception) -> bool:
    """Return True if the error concerns the whole store, so that other items fail as well."""
    is_of_one = isinstance(error, StoreBusy | StoreCorrupt | StoreFull)
    return isinstance(error, OperatorError) and not is_of_one


def require_all(outcomes: Sequence[Answer | FailedItem]) -> list[Answer]:
    """Return the answers; raise the error of the failed items, which carries the other answers."""
    error = failure(outcomes)
    if error is None:
        return succeeded(outcomes)
    if not isinstance(error, OperatorError):
        raise error
    answers = [None if isinstance(outcome, FailedItem) else outcome for outcome in outcomes]
    raise error.with_answers(answers) from error
