"""Every interleaving of a few workers, two jobs and the faults that may befall them (G10).

The destinations come from the real `decide`; the store and the workers are models of the contract.
The seeded bugs show that the search can fail: each breaks one rule, and is found.
"""

import os
from itertools import product
from typing import Final

import pytest

from outlast.core.decide import Change, Guard
from outlast.core.delivery import Delivery
from outlast.core.state import RunStatus, State

from .search import Found, Violation, search
from .search_model import Setting
from .search_store import Line, Row, Store
from .search_workers import FAILED, POISONED, SUCCEEDED, Rules

LEASE, LINKED, ONCE = Delivery.LEASE, Delivery.LINKED, Delivery.ONCE
Pair = tuple[Delivery, Delivery]

FULL: Final = os.environ.get("OUTLAST_SIZE") == "full"
ENDINGS: Final = (SUCCEEDED, FAILED, POISONED) if FULL else (SUCCEEDED, FAILED)
CANCELS: Final = (1, 1) if FULL else (1, 0)  # clients that ask for each job's end
AT_LEAST: Final[dict[Pair, int]] = {  # states: the first job may be cancelled, hence both orders
    (LEASE, LEASE): 950_000,
    (LEASE, LINKED): 350_000,
    (LINKED, LEASE): 350_000,
    (LINKED, LINKED): 130_000,
    (LEASE, ONCE): 95_000,
    (ONCE, LEASE): 95_000,
    (LINKED, ONCE): 35_000,
    (ONCE, LINKED): 35_000,
    (ONCE, ONCE): 9_000,
}


def small(pair: Pair, store: Store | None = None) -> Setting:
    rules = Rules(store=store or Store(), endings=ENDINGS)
    return Setting(rules=rules, deliveries=pair, workers=2, crashes=1, pauses=1)


def test_the_pairs_are_all_there_are_and_come_to_a_million_states():
    presets = (LEASE, LINKED, ONCE)

    pairs = set(product(presets, presets))

    assert set(AT_LEAST) == pairs
    assert sum(AT_LEAST.values()) > 1_000_000


@pytest.mark.slow
@pytest.mark.timeout(1800 if FULL else 300)
@pytest.mark.parametrize("pair", AT_LEAST, ids="-".join)
def test_every_reachable_state_keeps_every_invariant_and_can_end(pair: Pair):
    rules = Rules(store=Store(), endings=ENDINGS)
    setting = Setting(rules=rules, deliveries=pair, cancels=CANCELS, workers=3, crashes=2, pauses=1)

    found = search(setting)

    print(f"{'+'.join(pair)}: {found.states:,} states, {found.steps:,} steps")  # noqa: T201
    assert found.states >= AT_LEAST[pair]


@pytest.mark.slow
def test_two_workers_that_hold_both_jobs_keep_every_invariant():
    rules = Rules(store=Store(), slots=2)
    setting = Setting(rules=rules, deliveries=(LEASE, LINKED), workers=2, crashes=1, pauses=1)

    found = search(setting)

    assert found.states >= 350_000


def test_the_search_takes_every_kind_of_step():
    found = search(small((LEASE, ONCE)))

    assert found.happened == {
        *("claim", "renew", "expire", "reclaim", "due", "cancel"),
        *("send succeeded", "send failed", "send released", "send lost", "send stopped"),
        *("arrive", "arrive late", "learn", "report death"),
        *("crash", "pause", "thaw"),
    }


def test_the_search_reaches_every_end_a_delivery_allows():
    searches: list[Found] = [search(small((how, ONCE))) for how in (LEASE, LINKED, ONCE)]

    assert set().union(*(found.ends for found in searches)) == {
        *product([LEASE], [State.SUCCEEDED, State.DEAD_LETTER, State.CANCELLED]),
        *product([LINKED], [State.SUCCEEDED, State.FAILED, State.DEAD_LETTER, State.CANCELLED]),
        *product([ONCE], [State.SUCCEEDED, State.FAILED, State.CANCELLED]),
    }


class IgnoresTokens(Store):
    def is_current(self, row: Row, change: Change) -> bool:
        return True


class FinishesWithoutARun(Store):
    def guard_holds(self, row: Row, change: Change) -> bool:
        return change.move.guard is Guard.OPEN or super().guard_holds(row, change)


class RenewsWithAnyToken(Store):
    def renew(self, row: Row, token: int) -> Row:
        return super().renew(row, row.token)


class ReclaimsFreshLeases(Store):
    def guard_holds(self, row: Row, change: Change) -> bool:
        if change.move.guard is Guard.LAPSED:
            return row.open is not None
        return super().guard_holds(row, change)


class NeverReclaims(Store):
    def guard_holds(self, row: Row, change: Change) -> bool:
        return change.move.guard is not Guard.LAPSED and super().guard_holds(row, change)


class CountsReleases(Store):
    def close(self, row: Row, change: Change) -> Row:
        closed = super().close(row, change)
        is_released = change.move.run is RunStatus.RELEASED
        return closed._replace(failures=closed.failures + 1) if is_released else closed


class ForgetsLosses(Store):
    def close(self, row: Row, change: Change) -> Row:
        closed = super().close(row, change)
        is_lost = change.move.run is RunStatus.LOST
        return closed._replace(failures=row.failures) if is_lost else closed


class ForgetsCancelRequests(Store):
    def yields(self, row: Row, change: Change) -> bool:
        return False


class ReadsThenClaims(Store):
    reads_before_claim = True


class RemovesThenRecords(Store):
    def claim(self, row: Row) -> Row:
        return super().claim(row)._replace(open=None)


class ReusesTokens(Store):
    def claim(self, row: Row) -> Row:
        claimed = super().claim(row)
        token = max(row.token, 1)
        assert claimed.open is not None
        return claimed._replace(token=token, open=claimed.open._replace(token=token))


class AlwaysRequeues(Store):
    def put(self, row: Row, to: State) -> Row:
        is_lost = bool(row.runs) and row.runs[-1][1] is RunStatus.LOST
        return super().put(row, State.QUEUED if is_lost else to)


class DropsSuccessors(Store):
    def apply(self, line: Line, change: Change) -> Line:
        after = super().apply(line, change)
        return after._replace(rows=after.rows[: len(line.rows)])


SEEDED = [
    (IgnoresTokens, LEASE, "a write under a former token changes nothing"),
    (FinishesWithoutARun, LEASE, "a write under a former token changes nothing"),
    (RenewsWithAnyToken, LEASE, "a renewal under a former token changes nothing"),
    (ReclaimsFreshLeases, LEASE, "a fresh lease is never reclaimed"),
    (NeverReclaims, LEASE, "every job can come to its end"),
    (CountsReleases, LEASE, "failures are the failed and the lost runs"),
    (ForgetsLosses, LEASE, "failures are the failed and the lost runs"),
    (ForgetsCancelRequests, LEASE, "a job asked to stop ends with its run"),
    (
        ForgetsCancelRequests,
        LINKED,
        "a successor follows a failure with attempts left, unless cancelled",
    ),
    (ReadsThenClaims, LEASE, "an ended job never changes"),
    (RemovesThenRecords, LEASE, "a job is in exactly one place"),
    (ReusesTokens, LEASE, "each token opens one run and closes it once"),
    (AlwaysRequeues, ONCE, "a linked or once job runs at most once"),
    (DropsSuccessors, LINKED, "a successor follows a failure with attempts left, unless cancelled"),
]


@pytest.mark.parametrize(("bug", "delivery", "invariant"), SEEDED)
def test_a_seeded_bug_is_found_by_a_short_trace(
    bug: type[Store], delivery: Delivery, invariant: str
):
    setting = small((delivery, ONCE), bug())

    with pytest.raises(Violation) as found:
        search(setting)

    print(found.value)  # noqa: T201
    assert found.value.invariant == invariant
    assert 1 <= len(found.value.trace) <= 6


def test_two_workers_that_read_before_they_claim_are_found_to_share_a_job():
    rules = Rules(store=ReadsThenClaims())
    setting = Setting(rules=rules, deliveries=(LEASE, ONCE), cancels=(0, 0), crashes=0, pauses=0)

    with pytest.raises(Violation) as found:
        search(setting)

    assert found.value.trace == ["read 0", "read 0", "claim 0", "claim 0"]
