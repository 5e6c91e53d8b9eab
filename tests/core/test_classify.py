"""Which errors are worth another try (T-30)."""

import pytest

from outlast.core.classify import DEFAULT_CLASSES, OWN_CLASSES, Classifier, ErrorClass, ErrorMap
from outlast.errors import (
    InvalidParams,
    PayloadTooLarge,
    PermanentError,
    TransactionTimeout,
    TransientError,
)

PERMANENT, TRANSIENT = ErrorClass.PERMANENT, ErrorClass.TRANSIENT
BUILT_IN = OWN_CLASSES | DEFAULT_CLASSES


class FeedGone(LookupError):
    """An error of an app."""


class FeedGoneForGood(PermanentError):
    """A permanent error of an app."""


class RateLimited(ConnectionError):
    """More specific than what is built in."""


class Torn(PermanentError, TimeoutError):
    """Says two things; the first base is the nearer one."""


def other(verdict: ErrorClass) -> ErrorClass:
    return PERMANENT if verdict is TRANSIENT else TRANSIENT


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (PermanentError("no"), PERMANENT),
        (FeedGoneForGood("no"), PERMANENT),
        (InvalidParams("no"), PERMANENT),
        (PayloadTooLarge("no"), PERMANENT),
        (TransientError("later"), TRANSIENT),
        (TimeoutError(), TRANSIENT),
        (TransactionTimeout(), TRANSIENT),
        (ConnectionError(), TRANSIENT),
        (ConnectionResetError(), TRANSIENT),
        (BrokenPipeError(), TRANSIENT),
        (Torn(), PERMANENT),
    ],
    ids=lambda value: getattr(value, "name", type(value).__name__),
)
@pytest.mark.parametrize("unknown", ErrorClass)
def test_what_is_built_in_holds_whatever_the_default(
    error: BaseException, verdict: ErrorClass, unknown: ErrorClass
):
    assert Classifier(unknown=unknown).classify(error) is verdict


@pytest.mark.parametrize("error", [FeedGone(), ValueError(), KeyboardInterrupt(), SystemExit()])
@pytest.mark.parametrize("unknown", ErrorClass)
def test_an_unknown_error_gets_the_types_default(error: BaseException, unknown: ErrorClass):
    assert Classifier(unknown=unknown).classify(error) is unknown


def test_an_unknown_error_is_tried_again_unless_told_otherwise():
    assert Classifier().classify(FeedGone()) is TRANSIENT


@pytest.mark.parametrize("verdict", ErrorClass)
def test_the_types_map_beats_its_default(verdict: ErrorClass):
    classifier = Classifier(errors={FeedGone: verdict}, unknown=other(verdict))

    assert classifier.classify(FeedGone()) is verdict


@pytest.mark.parametrize("kind", BUILT_IN)
def test_the_types_map_beats_what_is_built_in(kind: type[BaseException]):
    verdict = other(BUILT_IN[kind])
    classifier = Classifier(errors={kind: verdict})

    assert classifier.classify(kind("x")) is verdict


@pytest.mark.parametrize("kind", [PermanentError, FeedGoneForGood])
def test_a_handlers_own_decision_beats_a_map_for_errors_at_large(kind: type[BaseException]):
    classifier = Classifier(errors={Exception: TRANSIENT})

    assert classifier.classify(kind("no")) is PERMANENT


def test_a_handlers_transient_error_beats_a_default_of_permanent():
    classifier = Classifier(errors={Exception: PERMANENT}, unknown=PERMANENT)

    assert classifier.classify(TransientError("later")) is TRANSIENT


@pytest.mark.parametrize(
    ("errors", "error", "verdict"),
    [
        ({Exception: PERMANENT, LookupError: TRANSIENT}, FeedGone(), TRANSIENT),
        ({LookupError: PERMANENT, FeedGone: TRANSIENT}, FeedGone(), TRANSIENT),
        ({FeedGone: TRANSIENT, LookupError: PERMANENT}, KeyError(), PERMANENT),
        ({RateLimited: PERMANENT}, RateLimited(), PERMANENT),
        ({RateLimited: PERMANENT}, ConnectionError(), TRANSIENT),
        ({OSError: PERMANENT}, FileNotFoundError(), PERMANENT),
        ({OSError: PERMANENT}, ConnectionError(), PERMANENT),
        ({BaseException: PERMANENT}, FeedGone(), PERMANENT),
    ],
)
def test_the_most_specific_class_that_is_known_decides(
    errors: ErrorMap, error: BaseException, verdict: ErrorClass
):
    assert Classifier(errors=errors).classify(error) is verdict


def test_no_error_of_a_seed_that_calls_all_transient_is_permanent():
    """S2's literal reading: every failure is tried again."""
    classifier = Classifier(errors=dict.fromkeys(BUILT_IN, TRANSIENT))

    verdicts = {classifier.classify(kind("x")) for kind in (*BUILT_IN, FeedGone)}

    assert verdicts == {TRANSIENT}


def test_what_is_built_in_cannot_be_changed():
    with pytest.raises(TypeError):
        OWN_CLASSES[FeedGone] = PERMANENT  # type: ignore[index]
