"""Failed attempts as events of Sentry, sent by its own client."""

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from outlast.core.duration import Duration, parse_duration
from outlast.core.failure import ExceptionInfo, Failure, Frame
from outlast.errors import InvalidType, OperatorError

if TYPE_CHECKING:
    from sentry_sdk import Client

LONGEST_TEXT: Final = 100_000
ALONE: Final = {
    "default_integrations": False,  # the app's own Sentry, if it has one, stays as it is
    "auto_enabling_integrations": False,
    "auto_session_tracking": False,
    "include_local_variables": False,  # these are the arguments
    "send_client_reports": False,
    "max_value_length": LONGEST_TEXT,
}


class Sentry:
    """A sink: `app.on_failure(Sentry(), show=["user_id"])`. Off where there is no DSN.

    The DSN is the one given, or `SENTRY_DSN` of the environment. Each failed attempt is an event
    of its own: a warning if the job will be tried again, an error if that was the last attempt.
    The client is Sentry's own, beside whatever client the app uses otherwise. InvalidType if the
    DSN cannot be one, OperatorError if `sentry-sdk` is not installed (`outlast[sentry]`).
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        environment: str | None = None,
        release: str | None = None,
        patience: Duration = "2s",
    ) -> None:
        """`patience`: how long one event may take to be sent before the next one is."""
        self._dsn = dsn or os.environ.get("SENTRY_DSN") or None
        self._about = {"environment": environment, "release": release}
        self._patience = parse_duration(patience, what="patience").total_seconds()
        self._making = threading.Lock()
        self._client: Client | None = None
        if self._dsn is not None:
            _check(self._dsn)

    @property
    def is_on(self) -> bool:
        """Whether there is anybody to tell."""
        return self._dsn is not None

    def __call__(self, failure: Failure) -> None:
        """Send it, and see it off."""
        if self._dsn is None:
            return
        client = self._connected()
        client.capture_event(event_of(failure))  # type: ignore[arg-type]  # a dict is what it is
        client.flush(timeout=self._patience)

    def _connected(self) -> "Client":
        """Made when first needed: its threads belong to the process that has something to say."""
        from sentry_sdk import Client  # noqa: PLC0415 - only who has a DSN needs it

        with self._making:
            if self._client is None:
                self._client = Client(dsn=self._dsn, **ALONE, **self._about)  # type: ignore[arg-type]  # options by name
            return self._client


def event_of(failure: Failure) -> dict[str, Any]:
    """The event as Sentry's protocol has it; the exception that came last stands last."""
    return {
        "platform": "python",
        "logger": "outlast",
        "level": "error" if failure.is_final else "warning",
        "transaction": failure.job_type,
        "tags": {
            "job_id": failure.job_id,
            "job_type": failure.job_type,
            "worker": failure.worker,
            "state": str(failure.state),
        },
        "contexts": {"job": dict(_job(failure))},
        "extra": {"traceback": failure.traceback},
        "exception": {"values": [*map(_exception, failure.raised[::-1])] or [_nothing(failure)]},
    }


def _job(failure: Failure) -> Iterator[tuple[str, Any]]:
    yield "job_id", failure.job_id
    yield "run_id", failure.run_id
    yield "job_type", failure.job_type
    yield "attempts", failure.attempt
    yield "max_attempts", failure.max_attempts
    yield "worker", failure.worker
    yield "status", str(failure.status)
    yield "state", str(failure.state)
    yield "reason", failure.reason
    yield "payload", failure.payload  # not among the extras: of those only ten fields would be sent
    if failure.retry_in is not None:
        yield "retry_in_seconds", failure.retry_in.total_seconds()


def _exception(raised: ExceptionInfo) -> dict[str, Any]:
    frames = [_frame(each) for each in raised.frames]
    return {
        "type": raised.type,
        "module": raised.module,
        "value": raised.message,
        "stacktrace": {"frames": frames},
        "mechanism": {"type": "outlast", "handled": True},
    }


def _frame(frame: Frame) -> dict[str, Any]:
    return {
        "filename": os.path.basename(frame.file),  # noqa: PTH119 - the file is perhaps not here
        "abs_path": frame.file,
        "function": frame.function,
        "lineno": frame.line,
        "context_line": frame.code,
        "in_app": f"{os.sep}outlast{os.sep}worker{os.sep}" not in frame.file,
    }


def _nothing(failure: Failure) -> dict[str, Any]:
    """Nobody raised anything: it was late, its process died, or it asked for another try."""
    return {"type": failure.error, "value": failure.reason or ""}


def _check(dsn: str) -> None:
    try:
        from sentry_sdk.utils import BadDsn, Dsn  # noqa: PLC0415 - only who has a DSN needs it
    except ModuleNotFoundError as error:
        raise OperatorError(
            "Sentry needs a client that is not installed; pip install 'outlast[sentry]', or leave "
            "its DSN out"
        ) from error
    try:
        Dsn(dsn)
    except (BadDsn, ValueError) as error:  # without its words: a DSN holds a key
        raise InvalidType(
            "the DSN of Sentry cannot be read; copy it from the settings of your project there, "
            "such as https://key@host/1"
        ) from error
