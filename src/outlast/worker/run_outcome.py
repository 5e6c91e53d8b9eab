"""One run: check the params, call the handler, and say what happened."""

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from outlast.core.classify import ErrorClass
from outlast.core.command import Command
from outlast.core.decide import Change, decide, succeed
from outlast.core.event import Event, Failed, Lost, Released, Skipped, Snoozed, Stopped
from outlast.core.failure_sink import COUNTED
from outlast.core.ids import JobId
from outlast.core.limits import MAX_REASON, truncate
from outlast.core.outcome import Cancel, HandlerOutcome, RetryAfter, Skip, Snooze
from outlast.core.run import Claim
from outlast.core.state import Loss
from outlast.errors import CommandFailed, LeaseLost, StopRequested, TransitionRefused
from outlast.jobs.registry import JobType
from outlast.run_context import WorkerRun

AnyType = JobType[Any, Any]

Note = Callable[[Claim, Change, BaseException | None], None]
"""Hears of each attempt that counts against its job, and what was raised, if anything was."""


class ActiveRun:
    """A run under way, and why it may be interrupted."""

    __slots__ = (
        "_new_run",
        "_run",
        "abandoned",
        "claim",
        "exit_code",
        "interrupted",
        "is_told",
        "kind",
        "log_path",
        "slot",
        "started",
        "stop",
        "task",
    )

    def __init__(
        self,
        claim: Claim,
        kind: AnyType,
        new_run: "Callable[[Claim, AnyType], WorkerRun]",
        slot: "asyncio.Task[Any] | None" = None,
        started: float = 0.0,
    ) -> None:
        """`slot` is the task that an async handler runs in; it began at `started`, by the loop."""
        self.claim = claim
        self.kind = kind
        self._new_run = new_run
        self._run: WorkerRun | None = None
        self.slot = slot
        self.started = started
        self.task: asyncio.Task[Any] | None = None
        self.stop: Callable[[], object] | None = None
        self.exit_code: int | None = None
        self.log_path: str | None = None
        self.interrupted: Event | None = None
        self.abandoned = False
        self.is_told = False

    @property
    def run(self) -> WorkerRun:
        """What its handler sees of it. Most see nothing, so it is made when first asked for."""
        if self._run is None:
            self._run = self._new_run(self.claim, self.kind)
        return self._run

    @property
    def has_run(self) -> bool:
        """Whether anybody has asked for it."""
        return self._run is not None

    @property
    def is_plain(self) -> bool:
        """Whether its handler did no more than return: nothing said, opened, or cancelled."""
        run = self._run
        is_quiet = run is None or not (run.has_news or run.opened is not None)
        return is_quiet and self.slot is not None and not self.slot.cancelling()

    @property
    def handler(self) -> Callable[..., Any]:
        """What to call with the job's params."""
        return partial(self.kind.function, self.run) if self.kind.takes_run else self.kind.function

    def interrupt(self, event: Event) -> None:
        """Ask the handler to stop; `event` is what happened, should it comply.

        Its executor says what that means: an async handler is cancelled at its next await, a
        thread is only told, and looks at `run.cancelled` when it pleases, a process is killed.
        """
        if self.interrupted is not None:
            return  # asking again would disturb it while it cleans up
        self.interrupted = event
        self.run.request_cancel()
        if self.stop is not None:
            self.stop()


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A result that is JSON text already: it was checked in the process that made it."""

    result: str | None


class RemoteError(Exception):
    """What a handler raised in a process of its own, as text, and whether a retry can help."""

    def __init__(self, text: str, *, permanent: bool) -> None:
        super().__init__(text)
        self.text = text
        self.permanent = permanent


class ProcessDied(Exception):
    """The handler's process is gone, and nobody knows how far it was."""


GAVE_WAY = (asyncio.CancelledError, StopRequested, LeaseLost, ProcessDied)
"""How a handler ends that was asked to stop, beside returning nothing."""


class OutcomeJudge:
    """Turns what a handler did into the change that closes its run."""

    def __init__(
        self,
        new_id: Callable[[], JobId],
        random: Callable[[], float],
        note: Note | None = None,
    ) -> None:
        self._new_id = new_id
        self._random = random
        self._note = note

    def returned(self, active: ActiveRun, value: object) -> Change:
        """The handler came back with a value: a result, or one of the outcomes."""
        claim = active.claim
        if active.interrupted is not None and _gave_way(active, value):
            return self.close(active, active.interrupted)
        if isinstance(value, HandlerOutcome):
            return self.close(active, self._outcome(active, value))
        try:
            result = (
                value.result if type(value) is EncodedResult else active.kind.dump_result(value)
            )
        except Exception as error:  # noqa: BLE001 - a result that cannot be kept is a failure
            return self.close(active, Failed(describe(error), permanent=True), error)
        return _with_artifacts(succeed(claim.job_id, claim.token, result), active)

    def raised(self, active: ActiveRun, error: BaseException) -> Change:
        """The handler raised: a failure, unless it stopped because it was asked to."""
        if active.interrupted is not None and isinstance(error, GAVE_WAY):
            return self.close(active, active.interrupted)
        if isinstance(error, ProcessDied):
            return self.close(active, Lost(Loss.OWNER_DEAD, truncate(str(error))), error)
        return self.close(active, self._failure(active, error), error)

    def unreadable(self, claim: Claim, error: BaseException) -> Change:
        """Its params no longer fit its type: no retry can help."""
        return self.decide(claim, Failed(describe(error), permanent=True), error)

    def close(self, active: ActiveRun, event: Event, error: BaseException | None = None) -> Change:
        try:
            change = self.decide(active.claim, event, error)
        except TransitionRefused as refused:
            change = self.decide(active.claim, Failed(describe(refused), permanent=True), refused)
        return _with_artifacts(change, active)

    def abandon(self, claim: Claim) -> Change:
        """The worker stops before the run could end."""
        return self.decide(claim, shutdown(claim))

    def decide(self, claim: Claim, event: Event, error: BaseException | None = None) -> Change:
        change = decide(claim, event, new_id=self._new_id)
        if self._note is not None and change.move.run in COUNTED:
            self._note(claim, change, error)
        return change

    def _failure(self, active: ActiveRun, error: BaseException) -> Failed:
        delay = active.kind.retry.delay(active.claim.failures + 1, self._random)
        if isinstance(error, RemoteError):
            return Failed(truncate(error.text), delay, permanent=error.permanent)
        verdict = active.kind.classifier.classify(error)
        return Failed(describe(error), delay, permanent=verdict is ErrorClass.PERMANENT)

    def _outcome(self, active: ActiveRun, value: HandlerOutcome) -> Event:
        match value:
            case Snooze():
                return Snoozed(value.delay, _short(value.reason))
            case Skip():
                return Skipped(_short(value.reason))
            case Cancel():
                return Stopped(_short(value.reason))
            case RetryAfter():
                asked = value.reason or "the handler asked for another try"
                return Failed(truncate(asked), value.delay)
            case Command():
                asked = 'it returned a Command; register it with executor="command"'
                return Failed(asked, permanent=True)
            case _:
                kind = type(value).__name__
                return self._failure(active, TypeError(f"a handler returned an unknown {kind}"))


def _with_artifacts(change: Change, active: ActiveRun) -> Change:
    """The change with all that the run leaves behind."""
    artifacts = active.run.artifacts if active.has_run else ()
    code, path = active.exit_code, active.log_path
    if not artifacts and code is None and path is None:
        return change
    return replace(change, artifacts=artifacts, exit_code=code, log_path=path)


def _gave_way(active: ActiveRun, value: object) -> bool:
    """Whether it ended because it was asked to. One that ended by itself first has its outcome,
    but past its time limit nothing it says counts."""
    match active.interrupted:
        case Lost(reason=Loss.TIMEOUT):
            return True
        case _:
            return value is None and active.run.saw_stop_request


def shutdown(claim: Claim) -> Event:
    """What a stopping worker does with a run: hand it back where its delivery allows."""
    return Released("shutdown") if claim.delivery.runs_again else Lost(Loss.SHUTDOWN)


def describe(error: BaseException) -> str:
    """The error as stored: its traceback, bounded; of a command, what it said."""
    if isinstance(error, CommandFailed):
        return truncate(str(error))
    try:
        return truncate("".join(traceback.format_exception(error)))
    except Exception:  # noqa: BLE001 - an exception with code of its own must not end its slot
        return f"{type(error).__name__}, which cannot be shown: looking at it raises"


def _short(reason: str | None) -> str | None:
    return None if reason is None else truncate(reason, MAX_REASON)
