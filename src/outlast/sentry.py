"""Failure sink for Sentry, with a Sentry client of its own."""

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from outlast.core.duration import Duration, parse_duration
from outlast.core.failure import ExceptionInfo, Failure, Frame
from outlast.errors import InvalidType, OperatorError

if TYPE_CHECKING:
    from sentry_sdk import Client

MAX_TEXT: Final = 100_000
"""Most characters of one text in an event."""

CLIENT_OPTIONS: Final = {
    "default_integrations": False,  # the app's own Sentry set-up stays as it is
    "auto_enabling_integrations": False,
    "auto_session_tracking": False,
    "include_local_variables": False,  # they hold the arguments
    "send_client_reports": False,
    "max_value_length": MAX_TEXT,
}


class Sentry:
    """Failure sink: `app.on_failure(Sentry(), show=["user_id"])`.

    Each failed attempt is one event: a warning if the job is retried, an error if it was the
    last attempt. The client is separate from a Sentry client of the app.

    Args:
        dsn: The DSN; `SENTRY_DSN` of the environment if left out. Without one the sink is off.
        environment: Environment of the events.
        release: Release of the events.
        timeout: How long sending one event may take.

    Raises:
        InvalidType: The DSN cannot be parsed.
        OperatorError: `sentry-sdk` is not installed (`outlast[sentry]`).
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        environment: str | None = None,
        release: str | None = None,
        timeout: Duration = "2s",
    ) -> None:
        self._dsn = dsn or os.environ.get("SENTRY_DSN") or None
        self._labels = {"environment": environment, "release": release}
        self._timeout_s = parse_duration(timeout, what="timeout").total_seconds()
        self._client_lock = threading.Lock()
        self._client: Client | None = None
        if self._dsn is not None:
            _check(self._dsn)

    @property
    def is_on(self) -> bool:
        """Whether a DSN is configured."""
        return self._dsn is not None

    def __call__(self, failure: Failure) -> None:
        """Send the failure and wait until it is sent or the timeout has passed."""
        if self._dsn is None:
            return
        client = self._connected()
        client.capture_event(event_of(failure))  # type: ignore[arg-type]  # an Event is a dict
        client.flush(timeout=self._timeout_s)

    def _connected(self) -> "Client":
        """Return the client, made on first use: its threads do not survive a fork."""
        from sentry_sdk import Client  # noqa: PLC0415 - needed only with a DSN

        with self._client_lock:
            if self._client is None:
                self._client = Client(dsn=self._dsn, **CLIENT_OPTIONS, **self._labels)  # type: ignore[arg-type]  # options by name
            return self._client


def event_of(failure: Failure) -> dict[str, Any]:
    """Return the failure as an event of Sentry's protocol; the outermost exception is last."""
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
        "exception": {
            "values": [*map(_exception, failure.raised[::-1])] or [_without_exception(failure)]
        },
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
    yield "payload", failure.payload  # Sentry sends only ten fields of `extra`
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
        "filename": os.path.basename(frame.file),  # noqa: PTH119 - the file may be on another machine
        "abs_path": frame.file,
        "function": frame.function,
        "lineno": frame.line,
        "context_line": frame.code,
        "in_app": f"{os.sep}outlast{os.sep}worker{os.sep}" not in frame.file,
    }


def _without_exception(failure: Failure) -> dict[str, Any]:
    """Return an exception entry for a failure without an exception, such as a timeout."""
    return {"type": failure.error, "value": failure.reason or ""}


def _check(dsn: str) -> None:
    try:
        from sentry_sdk.utils import BadDsn, Dsn  # noqa: PLC0415 - needed only with a DSN
    except ModuleNotFoundError as error:
        raise OperatorError(
            "Sentry needs a client that is not installed; pip install 'outlast[sentry]', or remove "
            "the DSN"
        ) from error
    try:
        Dsn(dsn)
    except (BadDsn, ValueError) as error:  # without its message: a DSN holds a key
        raise InvalidType(
            "the DSN of Sentry cannot be read; copy it from the settings of your Sentry project, "
            "such as https://key@host/1"
        ) from error
