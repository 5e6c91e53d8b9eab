"""A move puts a waiting job exactly where it should be, and moves no other job."""

from collections.abc import Mapping, Sequence
from itertools import count, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.ids import JobId
from outlast.core.ordering import (
    Ordering,
    distribute_positions,
    first_position,
    next_position,
    renumber_positions,
)
from outlast.core.position import SPACE_PER_JOB, Anchor, JobEdit, MoveTo, PositionedJob, move_job
from outlast.core.sync_coroutine import run_without_waiting
from outlast.errors import InvalidArgument

TARGET = JobId("the-target")


class Line:
    """A lane of plain numbers. `jobs` is seq → position; a lower `due` settles equal positions."""

    def __init__(self, positions: Sequence[int], *, due: Sequence[int] = ()) -> None:
        self.jobs = dict(enumerate(positions, 1))
        self.due = dict(enumerate(due or range(len(positions)), 1))
        self.written: list[dict[int, int]] = []
        self.read = 0

    @property
    def order(self) -> list[int]:
        return sorted(self.jobs, key=lambda seq: (self.jobs[seq], self.due[seq], seq))

    async def write(self, places: Mapping[int, int]) -> None:
        assert places.keys() <= self.jobs.keys()
        self.jobs |= places
        if places:
            self.written.append(dict(places))

    async def position(self, seq: int) -> int:
        return self.jobs[seq]

    async def ends(self, *, without: int) -> tuple[int | None, int | None]:
        found = [place for seq, place in self.jobs.items() if place and seq != without]
        return min(found, default=None), max(found, default=None)

    async def before(self, seq: int | None, number: int, *, without: int) -> list[PositionedJob]:
        negatives = [each for each in self.order if self.jobs[each] < 0]
        ahead = negatives if seq is None else self.order[: self.order.index(seq)]
        return self._like(seq, ahead[::-1], number, without)

    async def after(self, seq: int, number: int, *, without: int) -> list[PositionedJob]:
        return self._like(seq, self.order[self.order.index(seq) + 1 :], number, without)

    async def unplaced(self, last: int, *, without: int) -> list[int]:
        line = [seq for seq in self.order if not self.jobs[seq] and seq != without]
        return line[: line.index(last) + 1]

    def _like(
        self, seq: int | None, line: list[int], number: int, without: int
    ) -> list[PositionedJob]:
        sign = -1 if seq is None else self.jobs[seq]
        fits = [each for each in line if self.jobs[each] * sign > 0 and each != without][:number]
        self.read += len(fits)
        return [PositionedJob(each, self.jobs[each]) for each in fits]


def asked(order: Sequence[int], where: Anchor, moved: int, target: int) -> list[int]:
    """The order that is asked for, said as plainly as can be."""
    others = [seq for seq in order if seq != moved]
    match where:
        case Anchor.FRONT:
            return [moved, *others]
        case Anchor.BACK:
            return [*others, moved]
        case Anchor.SWAP:
            exchanged = {moved: target, target: moved}
            return [exchanged.get(seq, seq) for seq in order]
        case Anchor.BEFORE | Anchor.AFTER:
            at = others.index(target) + (where is Anchor.AFTER)
            return [*others[:at], moved, *others[at:]]


def move(line: Line, where: Anchor, moved: int, target: int, gap: int = 100) -> None:
    named = None if where in (Anchor.FRONT, Anchor.BACK) else target
    run_without_waiting(move_job(line, line.write, where, moved=moved, target=named, gap=gap))


positions = st.one_of(
    st.integers(-3, 3), st.integers(-1000, 1000), st.sampled_from([-200, -100, 0, 0, 0, 100, 200])
)
moves = st.lists(
    st.tuples(st.sampled_from(Anchor), st.integers(0, 60), st.integers(0, 60)), max_size=25
)


@given(
    st.lists(st.tuples(positions, st.integers(0, 3)), min_size=2, max_size=60),
    moves,
    st.sampled_from([1, 2, 10, 100]),
)
def test_every_move_gives_the_order_asked_for(
    jobs: list[tuple[int, int]], steps: list[tuple[Anchor, int, int]], gap: int
):
    line = Line([position for position, _ in jobs], due=[due for _, due in jobs])
    for where, one, other in steps:
        moved, target = one % len(jobs) + 1, other % len(jobs) + 1
        if moved == target:
            continue
        expected = asked(line.order, where, moved, target)

        move(line, where, moved, target, gap)

        assert line.order == expected
        assert line.jobs[moved] != 0


@given(st.lists(positions, min_size=2, max_size=40), moves)
def test_only_the_unplaced_before_the_target_get_a_position(
    places: list[int], steps: list[tuple[Anchor, int, int]]
):
    line = Line(places)
    for where, one, other in steps:
        moved, target = one % len(places) + 1, other % len(places) + 1
        if moved == target:
            continue
        zeros = {seq for seq in line.order if line.jobs[seq] == 0}
        beside = {Anchor.BEFORE: {target}, Anchor.AFTER: {target}, Anchor.SWAP: {moved, target}}
        last = max((line.order.index(seq) for seq in beside.get(where, set()) & zeros), default=-1)
        kept = {seq for seq in zeros - {moved} if line.order.index(seq) > last}

        move(line, where, moved, target)

        assert all(line.jobs[seq] == 0 for seq in kept)


def test_between_two_it_gets_the_middle_and_shifts_no_other():
    line = Line([100, 200, 300])

    move(line, Anchor.AFTER, 3, 1)

    assert line.written == [{3: 150}]


def test_before_the_first_it_stays_behind_those_without_a_position():
    line = Line([0, 100, 200])

    move(line, Anchor.BEFORE, 3, 2)

    assert line.written == [{3: 50}]


def test_a_swap_writes_two_and_no_other():
    line = Line([100, 200, 300, 400])

    move(line, Anchor.SWAP, 4, 2)

    assert line.written == [{4: 200, 2: 400}]


def test_a_swap_of_two_at_one_position_exchanges_their_places():
    line = Line([100, 100, 100])

    move(line, Anchor.SWAP, 1, 3)

    assert line.order == [3, 2, 1]


def test_front_and_back_go_beyond_the_last_and_beyond_zero():
    line = Line([500, 600, 700])
    for where in (Anchor.FRONT, Anchor.FRONT, Anchor.BACK):
        move(line, where, 2 if where is Anchor.FRONT else 3, 1)

    assert line.written == [{2: -100}, {2: -100}, {3: 600}]


def test_beside_one_without_a_position_those_before_it_get_one():
    line = Line([0, 0, 0, 0, 0])

    move(line, Anchor.AFTER, 5, 2)

    assert line.jobs == {1: -300, 2: -200, 5: -100, 3: 0, 4: 0}


def test_no_room_between_two_spreads_only_the_neighbours():
    line = Line([100 * n for n in range(1, 1001)])
    for _ in range(7):
        move(line, Anchor.BEFORE, 1000, 500)
        move(line, Anchor.BEFORE, 999, 500)

    assert [len(places) for places in line.written].count(1) >= 6
    assert max(len(places) for places in line.written) <= 17


@pytest.mark.parametrize("where", [Anchor.BEFORE, Anchor.AFTER])
@pytest.mark.parametrize("gap", [100, 10])
def test_many_moves_to_one_place_write_a_few_rows_each(where: Anchor, gap: int):
    line = Line([gap * n for n in range(1, 1001)])
    for moved in range(601, 1001):
        move(line, where, moved, 300, gap)

    written = sum(len(places) for places in line.written)
    assert written / 400 < 60
    assert line.read / 400 < 400


def test_random_moves_write_about_one_row_each():
    random, line = Random(5), Line([100 * n for n in range(1, 1001)])
    for _ in range(1000):
        moved, target = random.sample(range(1, 1001), 2)
        move(line, random.choice([Anchor.BEFORE, Anchor.AFTER]), moved, target)

    assert sum(len(places) for places in line.written) < 1500


@given(
    st.integers(1, 50),
    st.integers(-(10**6), 10**6),
    st.integers(1, 10**6),
    st.integers(1, 1000),
)
def test_spread_stays_between_its_bounds_and_rises(number: int, low: int, room: int, step: int):
    high = low + number + room

    for found, least, most in [
        (distribute_positions(number, low, high, step), low, high),
        (distribute_positions(number, low, None, step), low, None),
        (distribute_positions(number, None, high, step), None, high),
    ]:
        assert len(found) == number
        assert found == sorted(set(found))
        assert least is None or found[0] > least
        assert most is None or found[-1] < most


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_a_new_job_is_behind_and_a_first_one_before_and_neither_is_at_zero(end: int, gap: int):
    assert next_position(end, gap) > max(0, end)
    assert first_position(end, gap) < min(0, end)


@given(st.lists(st.integers(-5, 5), max_size=30), st.sampled_from(Ordering))
def test_renumbered_positions_keep_the_order(places: list[int], ordering: Ordering):
    places.sort()

    even = renumber_positions(places, ordering, 10)

    assert even == sorted(even)
    if ordering is Ordering.POSITION:
        assert even == [10 * n for n in range(1, len(places) + 1)]
    else:
        assert [(p > 0) - (p < 0) for p in even] == [(p > 0) - (p < 0) for p in places]
        assert len(set(even)) == len(places) - max(0, places.count(0) - 1)
    assert renumber_positions(even, ordering, 10) == even


def test_a_window_has_room_for_more_after_it_was_spread():
    line = Line(list(range(1, 50)))
    for moved in count(49, -1):
        move(line, Anchor.BEFORE, moved, 10, gap=1)
        if any(len(places) > 1 for places in line.written):
            break

    gaps = [line.jobs[b] - line.jobs[a] for a, b in pairwise(line.order)]
    assert max(gaps) >= SPACE_PER_JOB


@pytest.mark.parametrize(
    ("where", "target"), [(Anchor.FRONT, TARGET), (Anchor.BEFORE, None), (Anchor.SWAP, None)]
)
def test_a_place_has_a_target_exactly_when_it_needs_one(where: Anchor, target: JobId | None):
    with pytest.raises(InvalidArgument, match=str(where)):
        MoveTo(where, target)


def test_an_edit_names_what_it_gives_and_never_tells_the_params():
    assert JobEdit(params='{"secret":1}', priority=0).fields == "params, priority"


@pytest.mark.parametrize("given_up", [{}, {"delay": "both", "at": "both"}])
def test_an_edit_changes_something_and_is_due_once(given_up: dict[str, object]):
    with pytest.raises(InvalidArgument):
        JobEdit(**given_up)
