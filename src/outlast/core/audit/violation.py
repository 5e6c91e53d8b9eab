"""What `verify` can find wrong, each under a name that stays, with the repair that does no harm."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from outlast.core.audit.model import StrayKind
from outlast.core.ids import JobId


class ViolationCode(StrEnum):
    """The invariants, each named by how it is broken."""

    STANDS_NOWHERE = "stands_nowhere"  # it neither waits, runs nor has ended
    STANDS_TWICE = "stands_twice"  # it is in two or three places
    UNLIKE_ITS_JOB = "unlike_its_job"  # its place repeats the job otherwise than it is
    WORD_UNKNOWN = "word_unknown"  # a state or status that there is not
    WAITS_AGAIN = "waits_again"  # a started `once` or `linked` job is back in its queue
    RAN_TWICE = "ran_twice"  # a `once` or `linked` job has more than one run
    RUN_MISSING = "run_missing"  # its tokens do not count from 1 without a gap
    TOKEN_APART = "token_apart"  # noqa: S105 - the token of its place is not that of its last run
    OPEN_NOT_LAST = "open_not_last"  # a run was closed after the one that is open
    RUN_UNFINISHED = "run_unfinished"  # a closed run without the moment of its end
    RESULT_ASTRAY = "result_astray"  # a run that did not succeed has a result
    HOLDER_GONE = "holder_gone"  # a run of a worker that is not on record
    WENT_ON = "went_on"  # it went on after a run that ended it
    END_UNEXPLAINED = "end_unexplained"  # an end that its last run cannot have brought about
    END_APART = "end_apart"  # its success and the run that succeeded are of two moments
    END_UNTOLD = "end_untold"  # an end, not a success, of which no event tells
    EVENT_CONTRADICTS = "event_contradicts"  # its last event tells of another end
    EVENT_AHEAD = "event_ahead"  # an event of a run that never was
    COUNTS_UNPROVEN = "counts_unproven"  # failures or losses that its runs do not bear out
    FOLLOWED_TWICE = "followed_twice"  # two jobs retry it
    FOLLOWED_EARLY = "followed_early"  # a job retries it though it has not ended
    UNFOLLOWED = "unfollowed"  # a failed link of a chain, and nothing follows it
    CHAINED_ASTRAY = "chained_astray"  # its end wrote a successor, which its delivery forbids
    PREDECESSOR_GONE = "predecessor_gone"  # the job it retries is not there
    ROOT_BROKEN = "root_broken"  # its root is not that of the job it retries
    PARAMS_BROKEN = "params_broken"  # its params are no JSON
    RESERVATION_LEFT = "reservation_left"  # an active reservation of a job that has ended
    RESERVATION_ELSEWHERE = "reservation_elsewhere"  # its reservation holds another queue
    BLOCKED_ALONE = "blocked_alone"  # it waits for its group and is in none
    GROUP_GONE = "group_gone"  # the group it is a member of is not there
    RUN_OF_NO_JOB = "run_of_no_job"  # a closed run whose job is gone
    EVENT_OF_NO_JOB = "event_of_no_job"  # an event whose job is gone
    PLACE_OF_NO_JOB = "place_of_no_job"  # a place taken by a job that is gone
    KEY_OF_NO_JOB = "key_of_no_job"  # an active key whose job is gone
    KEY_LEFT = "key_left"  # an active key of a chain that has ended
    KEY_OF_A_LINK = "key_of_a_link"  # a key or slot of a job that is not the root of its chain
    SLOT_NOT_ITS_OWN = "slot_not_its_own"  # its slot has no row, or is another job's
    SCHEDULE_APART = "schedule_apart"  # it does not agree with what it is found by
    RESERVATION_OF_NO_JOB = "reservation_of_no_job"  # an active one whose job is gone
    RESERVED_TWICE = "reserved_twice"  # a queue with two active reservations
    ONCE_OVERLAPS = "once_overlaps"  # two `once` jobs of one name run
    GROUP_OUT_OF_TURN = "group_out_of_turn"  # a sequential group's later member came too early
    GROUP_STALLED = "group_stalled"  # members are blocked and nothing will unblock them


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken invariant: what is wrong, the records that show it, and the safe repair."""

    code: ViolationCode
    what: str
    rows: tuple[str, ...]
    job_id: JobId | None = None

    @property
    def repair(self) -> str:
        """What puts it right without making anything worse."""
        return REPAIRS[self.code]


_KEEP = "none is safe, for the history itself is wrong: keep a copy and restore a backup"
_STRAY_ROW = "delete the row: nothing refers to it"
_HISTORY = "none is needed for the jobs to go on: the row is history; a backup has it right"

REPAIRS: Final[Mapping[ViolationCode, str]] = MappingProxyType(
    {
        ViolationCode.STANDS_NOWHERE: "start a worker: recovery ends it as its last run says, or retries it",
        ViolationCode.STANDS_TWICE: (
            "stop all workers; keep the row whose token is that of the last run (an end before an "
            "open run, that before a waiting row) and delete the others"
        ),
        ViolationCode.UNLIKE_ITS_JOB: "stop all workers and write the job's own values into the row",
        ViolationCode.WORD_UNKNOWN: (
            "a waiting row: stop all workers and write `scheduled` into it; an end or a run: none "
            "is safe, restore a backup"
        ),
        ViolationCode.WAITS_AGAIN: "cancel the job: it has run and must not run again",
        ViolationCode.RAN_TWICE: _KEEP,
        ViolationCode.RUN_MISSING: _HISTORY,
        ViolationCode.TOKEN_APART: (
            "stop all workers and write the last run's token into the row; if that run itself is "
            "missing, restore a backup"
        ),
        ViolationCode.OPEN_NOT_LAST: (
            "stop all workers, delete the open run and start one: recovery ends the job as its "
            "last closed run says"
        ),
        ViolationCode.RUN_UNFINISHED: _HISTORY,
        ViolationCode.RESULT_ASTRAY: _HISTORY,
        ViolationCode.HOLDER_GONE: (
            "an open run: wait for its lease to be over, any worker then takes it; a closed one: "
            "point it at worker 0, who is nobody"
        ),
        ViolationCode.WENT_ON: "cancel the job if it still waits or runs: what it was asked to do is done",
        ViolationCode.END_UNEXPLAINED: _KEEP,
        ViolationCode.END_APART: _HISTORY,
        ViolationCode.END_UNTOLD: _HISTORY,
        ViolationCode.EVENT_CONTRADICTS: _HISTORY,
        ViolationCode.EVENT_AHEAD: _HISTORY,
        ViolationCode.COUNTS_UNPROVEN: (
            "stop all workers and write the numbers that the runs bear out; of an ended job: none "
            "is needed"
        ),
        ViolationCode.FOLLOWED_TWICE: "cancel the later successor, if it has not started",
        ViolationCode.FOLLOWED_EARLY: "cancel the successor, if it has not started; the job itself goes on",
        ViolationCode.UNFOLLOWED: "start a worker: recovery writes its successor, or gives it up",
        ViolationCode.CHAINED_ASTRAY: "cancel the successor, if it has not started",
        ViolationCode.PREDECESSOR_GONE: _HISTORY,
        ViolationCode.ROOT_BROKEN: _KEEP,
        ViolationCode.PARAMS_BROKEN: "cancel the job and enqueue it anew: no handler could read it",
        ViolationCode.RESERVATION_LEFT: "start a worker: recovery frees the reservation",
        ViolationCode.RESERVATION_ELSEWHERE: "start a worker, or wait: it is freed when it expires",
        ViolationCode.BLOCKED_ALONE: "cancel the job and enqueue it anew: nothing will ever unblock it",
        ViolationCode.GROUP_GONE: "cancel the job if it still waits: its group cannot start or stop it",
        ViolationCode.RUN_OF_NO_JOB: "start a worker: recovery copies it to the events and removes it",
        ViolationCode.EVENT_OF_NO_JOB: _STRAY_ROW,
        ViolationCode.PLACE_OF_NO_JOB: _STRAY_ROW,
        ViolationCode.KEY_OF_NO_JOB: "delete the row: the key is free then",
        ViolationCode.KEY_LEFT: "delete the row: the key is free then",
        ViolationCode.KEY_OF_A_LINK: "write the id of the chain's root into the row",
        ViolationCode.SLOT_NOT_ITS_OWN: (
            "cancel the job, if it has not started and another has its slot; else write its row"
        ),
        ViolationCode.SCHEDULE_APART: (
            "save the schedule again: that writes what it is found by; delete what is left over"
        ),
        ViolationCode.RESERVATION_OF_NO_JOB: "start a worker: recovery frees the reservation",
        ViolationCode.RESERVED_TWICE: "start a worker, or wait: the later one is freed when it expires",
        ViolationCode.ONCE_OVERLAPS: "cancel the later run, and look at what both have done",
        ViolationCode.GROUP_OUT_OF_TURN: "cancel the later member, if it has not started",
        ViolationCode.GROUP_STALLED: "start a worker for what stands nowhere; else cancel the group",
    }
)

DANGLING: Final[Mapping[StrayKind, tuple[ViolationCode, str]]] = MappingProxyType(
    {
        StrayKind.RUN: (ViolationCode.RUN_OF_NO_JOB, "a closed run whose job is gone"),
        StrayKind.EVENT: (ViolationCode.EVENT_OF_NO_JOB, "an event whose job is gone"),
        StrayKind.PLACE: (ViolationCode.PLACE_OF_NO_JOB, "a row of a job that is gone"),
        StrayKind.KEY: (ViolationCode.KEY_OF_NO_JOB, "an active key whose job is gone"),
        StrayKind.KEY_OF_ENDED: (ViolationCode.KEY_LEFT, "an active key whose chain has ended"),
        StrayKind.KEY_OF_LINK: (
            ViolationCode.KEY_OF_A_LINK,
            "it names a job that is no root of a chain",
        ),
        StrayKind.SLOT: (
            ViolationCode.SLOT_NOT_ITS_OWN,
            "a job whose slot has no row, or is another's",
        ),
        StrayKind.SCHEDULE: (
            ViolationCode.SCHEDULE_APART,
            "a schedule that does not agree with what it is found by",
        ),
        StrayKind.RESERVATION: (
            ViolationCode.RESERVATION_OF_NO_JOB,
            "an active reservation whose job is gone",
        ),
        StrayKind.RESERVED_TWICE: (
            ViolationCode.RESERVED_TWICE,
            "a queue is reserved more than once",
        ),
        StrayKind.OVERLAP: (
            ViolationCode.ONCE_OVERLAPS,
            "`once` jobs of one name run at the same time",
        ),
        StrayKind.OUT_OF_TURN: (
            ViolationCode.GROUP_OUT_OF_TURN,
            "a sequential group has a member in play before its turn",
        ),
        StrayKind.STALLED: (
            ViolationCode.GROUP_STALLED,
            "a sealed group has blocked members and nothing that would unblock them",
        ),
    }
)
"""What each kind of stray is, and in which words."""
