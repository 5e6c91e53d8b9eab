"""Turns the outcome of a handler into the change that closes its run."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from outlast.core.classify import ErrorClass
from outlast.core.command import Command
from outlast.core.decide import Change, decide, succeed
from outlast.core.error_text import error_text
from outlast.core.event import Event, Failed, Lost, Released, Skipped, Snoozed, Stopped, Unfit
from outlast.core.failure import ExceptionInfo
from outlast.core.failure_sink import COUNTED
from outlast.core.ids import JobId
from outlast.core.limits import MAX_REASON, truncate
from outlast.core.outcome import Cancel, HandlerOutcome, RetryAfter, Skip, Snooze
from outlast.core.retry import Backoff
from outlast.core.run import Claim
from outlast.core.state import Loss
from outlast.errors import (
    CommandFailed,
    LeaseLost,
    StopRequested,
    StoreBusy,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TransitionRefused,
)
from outlast.jobs.middleware import await_inside, call_inside, plain_only
from outlast.jobs.registry import JobType
from outlast.run_context import WorkerRun

log = logging.getLogger("outlast.worker")

AnyType = JobType[Any, Any]

FailureCallback = Callable[[Claim, Change, BaseException | None], None]
"""Called with each attempt that counts against its job, and the error if there was one."""


class ActiveRun:
    """A run in an execution slot, and the event that interrupted it, if any."""

    __slots__ = (
        "_new_run",
        "_run",
        "abandoned",
        "claim",
        "exit_code",
        "interrupted",
        "is_logged",
        "kind",
        "log_path",
        "slot_task",
        "started",
        "stop",
        "task",
    )

    def __init__(
        self,
        claim: Claim,
        kind: AnyType,
        new_run: "Callable[[Claim, AnyType], WorkerRun]",
        slot_task: "asyncio.Task[Any] | None" = None,
        started: float = 0.0,
    ) -> None:
        """Create an active run.

        `slot_task` is the task of its execution slot; `started` is a time of the event loop.
        """
        self.claim = claim
        self.kind = kind
        self._new_run = new_run
        self._run: WorkerRun | None = None
        self.slot_task = slot_task
        self.started = started
        self.task: asyncio.Task[Any] | None = None
        self.stop: Callable[[], object] | None = None
        self.exit_code: int | None = None
        self.log_path: str | None = None
        self.interrupted: Event | None = None
        self.abandoned = False
        self.is_logged = False

    @property
    def run(self) -> WorkerRun:
        """The run object of the handler, created on first use because most handlers take none."""
        if self._run is None:
            self._run = self._new_run(self.claim, self.kind)
        return self._run

    @property
    def has_run(self) -> bool:
        """Whether the run object was created."""
        return self._run is not None

    @property
    def is_plain(self) -> bool:
        """Whether the handler only returned: no progress, no transaction, no cancellation."""
        run = self._run
        is_quiet = run is None or not (run.has_news or run.opened is not None)
        return is_quiet and self.slot_task is not None and not self.slot_task.cancelling()

    @property
    def handler(self) -> Callable[..., Any]:
        """The callable that takes the job's params."""
        call = partial(self.kind.function, self.run) if self.kind.takes_run else self.kind.function
        return self._inside(call) if self.kind.middleware else call

    def _inside(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` inside the middleware that runs where the handler does."""
        run, middleware = self.run, self.kind.middleware
        if inspect.iscoroutinefunction(self.kind.function):
            return lambda **params: await_inside(middleware, run, partial(call, **params))
        plain = plain_only(middleware)
        return lambda **params: call_inside(plain, run, partial(call, **params))

    def interrupt(self, event: Event) -> None:
        """Ask the handler to stop; `event` closes the run if the handler complies.

        The executor decides how: an async handler is cancelled at its next await, a thread sees
        `run.cancelled` or stops at a checkpoint, a process is killed. No-op after the first call.
        """
        if self.interrupted is not None:
            return  # a second request would interrupt its cleanup
        self.interrupted = event
        self.run.request_cancel()
        if self.stop is not None:
            self.stop()


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A result that the handler process has already validated and encoded as JSON."""

    result: str | None


class RemoteError(Exception):
    """An error of a handler process, as text and as data, and whether it is permanent.

    `is_unfit`: the handler was not called, because the params do not fit the code of the process.
    """

    def __init__(
        self,
        text: str,
        *,
        raised: tuple[ExceptionInfo, ...],
        permanent: bool,
        is_unfit: bool = False,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.raised = raised
        self.permanent = permanent
        self.is_unfit = is_unfit


class ProcessDied(Exception):
    """The handler process ended before the handler returned."""


OUTAGES = (StoreBusy, StoreFull, StoreReadOnly, StoreUnavailable)
"""Errors of a store that works again later."""

STOP_EXCEPTIONS = (asyncio.CancelledError, StopRequested, LeaseLost, ProcessDied)
"""Errors with which a handler complies with a stop request, besides returning None."""


class OutcomeJudge:
    """Decides the change that closes a run from what its handler did."""

    def __init__(
        self,
        new_id: Callable[[], JobId],
        random: Callable[[], float],
        on_failure: FailureCallback | None = None,
    ) -> None:
        self._new_id = new_id
        self._random = random
        self._on_failure = on_failure

    def returned(self, active: ActiveRun, value: object) -> Change:
        """Return the change for a handler that returned a result or an outcome."""
        claim = active.claim
        if active.interrupted is not None and _gave_way(active, value):
            return self.close(active, active.interrupted)
        if isinstance(value, HandlerOutcome):
            return self.close(active, self._outcome(active, value))
        try:
            result = (
                value.result if type(value) is EncodedResult else active.kind.dump_result(value)
            )
        except Exception as error:  # noqa: BLE001 - a result that cannot be stored is a failure
            return self.close(active, Failed(describe_error(error), permanent=True), error)
        return _with_artifacts(succeed(claim.job_id, claim.token, result), active)

    def raised(self, active: ActiveRun, error: BaseException) -> Change:
        """Return the change for a handler that raised: a failure, unless it was asked to stop."""
        if active.interrupted is not None and isinstance(error, STOP_EXCEPTIONS):
            return self.close(active, active.interrupted)
        if isinstance(error, ProcessDied):
            return self.close(active, Lost(Loss.OWNER_DEAD, truncate(str(error))), error)
        if active.has_run and error is active.run.store_error:
            return self.store_failed(active, error)
        return self.close(active, self._failure(active, error), error)

    def store_failed(self, active: ActiveRun, error: BaseException) -> Change:
        """Return the change for a run whose transaction the store could not open or commit.

        The handler is not at fault: no attempt is spent where the delivery allows another run.
        """
        if isinstance(error, OUTAGES) and active.claim.delivery.runs_again:
            log.warning("run released, the store failed job=%s: %s", active.claim.id, error)
            return self.close(active, Released("store_failed"))
        return self.close(active, self._failure(active, error), error)

    def unknown_type(self, claim: Claim, error: BaseException) -> Change:
        """Return the change for a type that the worker has not registered: a permanent failure."""
        return self.decide(claim, Failed(describe_error(error), permanent=True), error)

    def refused(self, claim: Claim, event: Unfit, error: BaseException) -> Change:
        """Return the change for params that do not fit this worker's code."""
        return self.decide(claim, event, error)

    def close(self, active: ActiveRun, event: Event, error: BaseException | None = None) -> Change:
        """Return the change for an event, or a permanent failure if it is no valid transition."""
        try:
            change = self.decide(active.claim, event, error)
        except TransitionRefused as refused:
            change = self.decide(
                active.claim, Failed(describe_error(refused), permanent=True), refused
            )
        return _with_artifacts(change, active)

    def abandon(self, claim: Claim) -> Change:
        """Return the change for a run that did not end before its worker stopped."""
        return self.decide(claim, shutdown_event(claim))

    def decide(self, claim: Claim, event: Event, error: BaseException | None = None) -> Change:
        """Return the change for an event, and report it if it is a counted failure."""
        change = decide(claim, event, new_id=self._new_id)
        if self._on_failure is not None and change.move.run in COUNTED:
            self._on_failure(claim, change, error)
        return change

    def _failure(self, active: ActiveRun, error: BaseException) -> Failed:
        delay, problem = self._delay(active)
        if isinstance(error, RemoteError):
            return Failed(truncate(problem + error.text), delay, permanent=error.permanent)
        verdict = active.kind.classifier.classify(error)
        text = truncate(problem + describe_error(error))
        return Failed(text, delay, permanent=verdict is ErrorClass.PERMANENT)

    def _delay(self, active: ActiveRun) -> tuple[timedelta, str]:
        """Return the wait before the retry, and what failed if the type's own function did."""
        retry = active.claim.failures + 1
        try:
            return active.kind.retry.delay(retry, self._random), ""
        except Exception as error:  # noqa: BLE001 - the user's function; the job must be retried
            problem = f"retry= failed too ({error!r:.200}), so the default backoff is used\n"
            return Backoff().delay(retry, self._random), problem

    def _outcome(self, active: ActiveRun, value: HandlerOutcome) -> Event:
        match value:
            case Snooze():
                return Snoozed(value.delay, _short(value.reason))
            case Skip():
                return Skipped(_short(value.reason))
            case Cancel():
                return Stopped(_short(value.reason))
            case RetryAfter():
                reason = value.reason or "the handler asked for another try"
                return Failed(truncate(reason), value.delay)
            case Command():
                error = 'it returned a Command; register it with executor="command"'
                return Failed(error, permanent=True)
            case _:
                kind = type(value).__name__
                return self._failure(active, TypeError(f"a handler returned an unknown {kind}"))


def _with_artifacts(change: Change, active: ActiveRun) -> Change:
    """Return the change with the artifacts, exit code and log path of the run."""
    artifacts = active.run.artifacts if active.has_run else ()
    code, path = active.exit_code, active.log_path
    if not artifacts and code is None and path is None:
        return change
    return replace(change, artifacts=artifacts, exit_code=code, log_path=path)


def _gave_way(active: ActiveRun, value: object) -> bool:
    """Whether the handler ended because of the stop request.

    A handler that ended by itself keeps its outcome. After a timeout no outcome counts.
    """
    match active.interrupted:
        case Lost(reason=Loss.TIMEOUT):
            return True
        case _:
            return value is None and active.run.saw_stop_request


def shutdown_event(claim: Claim) -> Event:
    """Return the event of a run on shutdown: released where its delivery allows it, else lost."""
    return Released("shutdown") if claim.delivery.runs_again else Lost(Loss.SHUTDOWN)


def describe_error(error: BaseException) -> str:
    """Return the error text to store: the traceback, or a command's message."""
    if isinstance(error, RemoteError):
        return truncate(error.text)
    return truncate(str(error)) if isinstance(error, CommandFailed) else error_text(error)


def _short(reason: str | None) -> str | None:
    return None if reason is None else truncate(reason, MAX_REASON)
