"""Violations that `verify` reports: stable codes, each with a safe repair."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from outlast.core.audit.model import DanglingKind
from outlast.core.ids import JobId


class ViolationCode(StrEnum):
    """Codes of the violations; each names what is wrong."""

    DETACHED = "detached"  # the job is in no state table
    TWO_STATE_ROWS = "two_state_rows"  # the job is in two or three state tables
    STATE_ROW_MISMATCH = "state_row_mismatch"  # its state row differs from the job
    UNKNOWN_STATE = "unknown_state"  # an unknown state or status
    WAITS_AGAIN = "waits_again"  # a started `once` or `linked` job is back in its queue
    RAN_TWICE = "ran_twice"  # a `once` or `linked` job has more than one run
    RUN_MISSING = "run_missing"  # its tokens do not count from 1 without a gap
    TOKEN_MISMATCH = "token_mismatch"  # noqa: S105 - not the token of its last run
    OPEN_NOT_LAST = "open_not_last"  # a run ended after the one that is open
    RUN_WITHOUT_END = "run_without_end"  # an ended run without an end time
    UNEXPECTED_RESULT = "unexpected_result"  # a run that did not succeed has a result
    UNKNOWN_HOLDER = "unknown_holder"  # a run of a worker that is not registered
    CONTINUED_AFTER_END = "continued_after_end"  # the job continued after a run that ended it
    END_UNEXPLAINED = "end_unexplained"  # an end that its last run cannot have caused
    END_TIME_MISMATCH = "end_time_mismatch"  # job and run ended at different times
    END_EVENT_MISSING = "end_event_missing"  # an end other than success without an event
    EVENT_CONTRADICTS = "event_contradicts"  # its last event reports another end
    EVENT_OF_NO_RUN = "event_of_no_run"  # an event of a run that does not exist
    COUNTS_MISMATCH = "counts_mismatch"  # failures or losses that do not match its runs
    TWO_SUCCESSORS = "two_successors"  # two jobs retry it
    EARLY_SUCCESSOR = "early_successor"  # a job retries it although it has not ended
    MISSING_SUCCESSOR = "missing_successor"  # a failed linked job without a successor
    UNEXPECTED_SUCCESSOR = "unexpected_successor"  # a successor that its delivery forbids
    MISSING_PREDECESSOR = "missing_predecessor"  # the job it retries is missing
    ROOT_MISMATCH = "root_mismatch"  # its root is not that of the job it retries
    PARAMS_NOT_JSON = "params_not_json"  # its params are not JSON
    BODY_MISSING = "body_missing"  # a long text of the job or of a run is missing
    RESERVATION_OF_ENDED_JOB = "reservation_of_ended_job"  # an active reservation of an ended job
    RESERVATION_OF_OTHER_QUEUE = "reservation_of_other_queue"  # its reservation is of another queue
    BLOCKED_WITHOUT_GROUP = "blocked_without_group"  # it is blocked and in no group
    MISSING_GROUP = "missing_group"  # the group it is a member of is missing
    ORPHAN_RUN = "orphan_run"  # an ended run whose job is missing
    DANGLING_EVENT = "dangling_event"  # an event whose job is missing
    DANGLING_STATE_ROW = "dangling_state_row"  # a state row whose job is missing
    DANGLING_BODY = "dangling_body"  # a long text that no job or run refers to
    METADATA_INVALID = "metadata_invalid"  # its headers, tags and meta cannot be read
    LABEL_MISMATCH = "label_mismatch"  # its label rows are not those of its tags and meta
    DANGLING_LABEL = "dangling_label"  # a label whose job is missing
    DANGLING_KEY = "dangling_key"  # an active key whose job is missing
    KEY_NOT_HELD = "key_not_held"  # an unfinished job does not hold its active key
    KEY_OF_ENDED_CHAIN = "key_of_ended_chain"  # an active key of a chain that has ended
    KEY_OF_NON_ROOT = "key_of_non_root"  # a key or slot of a job that is not the root of its chain
    SLOT_MISMATCH = "slot_mismatch"  # its slot has no row, or is another job's
    SCHEDULE_INDEX_MISMATCH = "schedule_index_mismatch"  # index entries differ from the schedule
    INDEX_MISMATCH = "index_mismatch"  # an index entry is missing, or has no record
    DANGLING_RESERVATION = "dangling_reservation"  # an active reservation whose job is missing
    RESERVED_TWICE = "reserved_twice"  # a queue with two active reservations
    ONCE_OVERLAP = "once_overlap"  # two `once` jobs of one name run
    GROUP_OUT_OF_TURN = "group_out_of_turn"  # a sequential group member started before its turn
    UNFINISHED_INTENT = "unfinished_intent"  # an operation written in part cannot be completed
    QUARANTINED = "quarantined"  # a record that does not parse, or has another key
    STALLED_GROUP = "stalled_group"  # blocked members that nothing will unblock


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One violated invariant.

    Attributes:
        code: Stable code of the invariant.
        what: What is wrong, with ids and numbers.
        rows: The records that show it.
        job_id: The job concerned, if there is one.
    """

    code: ViolationCode
    what: str
    rows: tuple[str, ...]
    job_id: JobId | None = None

    @property
    def repair(self) -> str:
        """A repair that does no further damage."""
        return REPAIRS[self.code]


_RESTORE: Final = (
    "none is safe, because the history itself is wrong: keep a copy and restore a backup"
)
_HISTORY: Final = "none is needed, because the row is only history; a backup has the right values"
_DELETE: Final = "delete the row: nothing refers to it"
_FREE_KEY: Final = "delete the row: that frees the key"
_RECOVERY_RELEASES: Final = "start a worker: recovery releases the reservation"

REPAIRS: Final[Mapping[ViolationCode, str]] = MappingProxyType(
    {
        ViolationCode.DETACHED: (
            "`outlast verify --repair` ends the job as its last run ended, or retries it"
        ),
        ViolationCode.TWO_STATE_ROWS: (
            "stop all workers; keep the row with the token of the last run (an end before an "
            "open run, an open run before a waiting row) and delete the others"
        ),
        ViolationCode.STATE_ROW_MISMATCH: (
            "stop all workers and write the job's values into the row"
        ),
        ViolationCode.UNKNOWN_STATE: (
            "a waiting row: stop all workers and write `scheduled` into it; an end or a run: "
            "restore a backup"
        ),
        ViolationCode.WAITS_AGAIN: "cancel the job: it has run and must not run again",
        ViolationCode.RAN_TWICE: _RESTORE,
        ViolationCode.RUN_MISSING: _HISTORY,
        ViolationCode.TOKEN_MISMATCH: (
            "stop all workers and write the last run's token into the row; if that run is "
            "missing, restore a backup"
        ),
        ViolationCode.OPEN_NOT_LAST: (
            "stop all workers, delete the open run and run `outlast verify --repair`, which ends "
            "the job as its last ended run says"
        ),
        ViolationCode.RUN_WITHOUT_END: _HISTORY,
        ViolationCode.UNEXPECTED_RESULT: _HISTORY,
        ViolationCode.UNKNOWN_HOLDER: (
            "an open run: wait until its lease expires, then a worker reclaims it; an ended "
            "run: set its worker to 0, the unknown worker"
        ),
        ViolationCode.CONTINUED_AFTER_END: "cancel the job if it waits or runs: its work is done",
        ViolationCode.END_UNEXPLAINED: _RESTORE,
        ViolationCode.END_TIME_MISMATCH: _HISTORY,
        ViolationCode.END_EVENT_MISSING: _HISTORY,
        ViolationCode.EVENT_CONTRADICTS: _HISTORY,
        ViolationCode.EVENT_OF_NO_RUN: _HISTORY,
        ViolationCode.COUNTS_MISMATCH: (
            "stop all workers and write the numbers of its runs; an ended job needs no repair"
        ),
        ViolationCode.TWO_SUCCESSORS: "cancel the later successor if it has not started",
        ViolationCode.EARLY_SUCCESSOR: (
            "cancel the successor if it has not started; the job itself continues"
        ),
        ViolationCode.MISSING_SUCCESSOR: (
            "`outlast verify --repair` writes the successor, or ends the job as dead letter"
        ),
        ViolationCode.UNEXPECTED_SUCCESSOR: "cancel the successor if it has not started",
        ViolationCode.MISSING_PREDECESSOR: _HISTORY,
        ViolationCode.ROOT_MISMATCH: _RESTORE,
        ViolationCode.PARAMS_NOT_JSON: (
            "cancel the job and enqueue it again: no handler can read it"
        ),
        ViolationCode.BODY_MISSING: (
            "restore the item from a backup; without it, cancel the job if it waits and enqueue it "
            "again"
        ),
        ViolationCode.RESERVATION_OF_ENDED_JOB: _RECOVERY_RELEASES,
        ViolationCode.RESERVATION_OF_OTHER_QUEUE: (
            "start a worker, or wait: the reservation is released when it expires"
        ),
        ViolationCode.BLOCKED_WITHOUT_GROUP: (
            "cancel the job and enqueue it again: nothing will unblock it"
        ),
        ViolationCode.MISSING_GROUP: (
            "cancel the job if it waits: its group cannot start or stop it"
        ),
        ViolationCode.ORPHAN_RUN: (
            "`outlast verify --repair` copies the run to the events and deletes it"
        ),
        ViolationCode.DANGLING_EVENT: _DELETE,
        ViolationCode.DANGLING_STATE_ROW: _DELETE,
        ViolationCode.DANGLING_BODY: _DELETE,
        ViolationCode.METADATA_INVALID: (
            "cancel the job if it waits, and enqueue it again: no handler can read it"
        ),
        ViolationCode.LABEL_MISMATCH: (
            "write the missing rows and delete the surplus ones: only searches read them"
        ),
        ViolationCode.DANGLING_LABEL: _DELETE,
        ViolationCode.DANGLING_KEY: _FREE_KEY,
        ViolationCode.KEY_NOT_HELD: (
            "cancel the job if another job holds the key; else write the row of the key"
        ),
        ViolationCode.KEY_OF_ENDED_CHAIN: _FREE_KEY,
        ViolationCode.KEY_OF_NON_ROOT: "write the id of the chain's root into the row",
        ViolationCode.SLOT_MISMATCH: (
            "cancel the job if it has not started and another job has its slot; else write the "
            "row of the slot"
        ),
        ViolationCode.SCHEDULE_INDEX_MISMATCH: (
            "save the schedule again, which writes its index entries; delete the others"
        ),
        ViolationCode.INDEX_MISMATCH: (
            "write the missing entry as other records of that kind have it; delete an entry whose "
            "record is gone"
        ),
        ViolationCode.DANGLING_RESERVATION: _RECOVERY_RELEASES,
        ViolationCode.QUARANTINED: (
            "correct the field that it names, or delete the record: the job then runs, or is gone"
        ),
        ViolationCode.RESERVED_TWICE: (
            "start a worker, or wait: the later one is released when it expires"
        ),
        ViolationCode.ONCE_OVERLAP: "cancel the later run, and check the effects of both",
        ViolationCode.GROUP_OUT_OF_TURN: "cancel the later member if it has not started",
        ViolationCode.UNFINISHED_INTENT: (
            "use the newest Outlast, which completes it when it opens the store; if it cannot, "
            "restore a backup"
        ),
        ViolationCode.STALLED_GROUP: (
            "`outlast verify --repair` recovers detached members; if that does not help, cancel "
            "the group"
        ),
    }
)
"""The safe repair of each violation."""

DANGLING: Final[Mapping[DanglingKind, tuple[ViolationCode, str]]] = MappingProxyType(
    {
        DanglingKind.RUN: (ViolationCode.ORPHAN_RUN, "an ended run whose job is missing"),
        DanglingKind.EVENT: (ViolationCode.DANGLING_EVENT, "an event whose job is missing"),
        DanglingKind.PLACE: (ViolationCode.DANGLING_STATE_ROW, "a state row whose job is missing"),
        DanglingKind.BODY: (
            ViolationCode.DANGLING_BODY,
            "a long text that no job or run refers to",
        ),
        DanglingKind.LABEL: (ViolationCode.DANGLING_LABEL, "a label whose job is missing"),
        DanglingKind.KEY: (ViolationCode.DANGLING_KEY, "an active key whose job is missing"),
        DanglingKind.KEY_OF_ENDED: (
            ViolationCode.KEY_OF_ENDED_CHAIN,
            "an active key whose chain has ended",
        ),
        DanglingKind.KEY_OF_LINK: (
            ViolationCode.KEY_OF_NON_ROOT,
            "a key or slot of a job that is not the root of its chain",
        ),
        DanglingKind.SLOT: (
            ViolationCode.SLOT_MISMATCH,
            "a job whose slot has no row, or is another job's",
        ),
        DanglingKind.SCHEDULE: (
            ViolationCode.SCHEDULE_INDEX_MISMATCH,
            "a schedule that differs from its index entries",
        ),
        DanglingKind.INDEX: (
            ViolationCode.INDEX_MISMATCH,
            "an index entry that is missing or has no record",
        ),
        DanglingKind.QUARANTINED: (ViolationCode.QUARANTINED, "a damaged record"),
        DanglingKind.RESERVATION: (
            ViolationCode.DANGLING_RESERVATION,
            "an active reservation whose job is missing",
        ),
        DanglingKind.RESERVED_TWICE: (
            ViolationCode.RESERVED_TWICE,
            "a queue with more than one active reservation",
        ),
        DanglingKind.OVERLAP: (
            ViolationCode.ONCE_OVERLAP,
            "`once` jobs of one name run at the same time",
        ),
        DanglingKind.OUT_OF_TURN: (
            ViolationCode.GROUP_OUT_OF_TURN,
            "a member of a sequential group started before its turn",
        ),
        DanglingKind.INTENT: (
            ViolationCode.UNFINISHED_INTENT,
            "an operation that was written in part and cannot be completed",
        ),
        DanglingKind.STALLED: (
            ViolationCode.STALLED_GROUP,
            "a sealed group with blocked members that nothing will unblock",
        ),
    }
)
"""The violation of each kind of dangling record, and its description."""
