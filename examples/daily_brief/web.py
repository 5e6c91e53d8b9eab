"""The web process: shows editions and runs, and takes slots for the worker. It runs no job."""

import argparse
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import Any, Final, NoReturn
from urllib.parse import parse_qs, urlencode, urlsplit
from wsgiref.simple_server import WSGIServer, make_server

from outlast import InvalidSchedule, OperatorError, Outlast, ScheduleNotFound, SlotTaken, Sync
from outlast.clock import Clock, SystemClock

from . import edition, job_runs, page
from .config import DESK_FILE, store_url
from .desk import Desk
from .promises import GUARANTEED, NOT_GUARANTEED, TOPOLOGY

MOST_BODY: Final = 4096
RUNS: Final = 50
SLOTS: Final = 4

Start = Callable[[str, list[tuple[str, str]]], object]
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class WebRunsNoJobs(RuntimeError):
    """The web process was asked to run jobs or schedules."""


class Counter(Outlast):
    """An app without job types and without a worker, which only takes slots."""

    def worker(self, **_: Any) -> NoReturn:
        raise _refusal()

    def engine(self, *_: Any, **__: Any) -> NoReturn:
        raise _refusal()


class Answer(Exception):
    """A response to the browser."""

    def __init__(
        self, status: HTTPStatus, body: str = "", *, kind: str = HTML, location: str | None = None
    ) -> None:
        super().__init__(status)
        self.status = status
        self.body = body.encode()
        self.headers = [
            ("Content-Type", kind),
            ("Content-Length", str(len(self.body))),
            ("Content-Security-Policy", page.policy()),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
            *([("Location", location)] if location else []),
        ]


class Web:
    """A WSGI application over one folder: `gunicorn daily_brief.web:application`."""

    def __init__(self, folder: Path, *, clock: Clock | None = None) -> None:
        self._folder = folder.absolute()
        self._clock = clock or SystemClock()
        self.desk: Final = Desk(self._folder / DESK_FILE)
        self._mine: tuple[int, Counter, Sync] | None = None
        self._making = Lock()

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        try:
            answer = self._answer(environ)
        except Answer as refusal:
            answer = refusal
        except OperatorError as error:
            answer = Answer(HTTPStatus.SERVICE_UNAVAILABLE, page.message("Not now", str(error)))
        start(f"{answer.status.value} {answer.status.phrase}", answer.headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else answer.body]

    def close(self) -> None:
        """Close the store. Idempotent."""
        mine, self._mine = self._mine, None
        if mine is not None:
            mine[2].close()

    @property
    def counter(self) -> Counter:
        return self._process()[0]

    def _process(self) -> tuple[Counter, Sync]:
        """Return the app of this process; Gunicorn may fork after the import."""
        with self._making:
            if self._mine is None or self._mine[0] != os.getpid():
                counter = Counter(store_url(self._folder))
                self._mine = os.getpid(), counter, counter.sync()
            return self._mine[1:]

    def _answer(self, environ: dict[str, Any]) -> Answer:
        method, path = environ["REQUEST_METHOD"], environ.get("PATH_INFO") or "/"
        if method == "POST" and path == "/runs":
            return self._claim(environ)
        if method not in {"GET", "HEAD"}:
            raise _say(HTTPStatus.METHOD_NOT_ALLOWED, "Only /runs takes a form.")
        pages: Mapping[str, Callable[[], Answer]] = {
            "/": lambda: self._front(None),
            "/now": lambda: self._show(edition.draft(self.desk, self._clock.now())),
            "/runs": lambda: self._runs(environ.get("QUERY_STRING") or ""),
            "/metrics": self._metrics,
            "/healthz": _health,
        }
        if path in pages:
            return pages[path]()
        if found := re.fullmatch(r"/briefs/(\d{4}-\d\d-\d\d)", path):
            return self._front(found[1])
        raise _say(HTTPStatus.NOT_FOUND, "There is no such page; the brief is at /.")

    def _front(self, day: str | None) -> Answer:
        """Render the edition of a day, by default the latest, or the draft if there is none."""
        wanted = day or next(iter(edition.days(self.desk)), None)
        found = None if wanted is None else edition.published(self.desk, wanted)
        if found is None and day is not None:
            raise _say(HTTPStatus.NOT_FOUND, f"No brief was published on {day}.")
        return self._show(found or edition.draft(self.desk, self._clock.now()))

    def _show(self, shown: edition.Edition) -> Answer:
        days, feeds = edition.days(self.desk), edition.feeds(self.desk)
        return Answer(HTTPStatus.OK, page.front(shown, feeds, days, self._clock.now()))

    def _metrics(self) -> Answer:
        """Render what start-up recovery and thresholds closed, counted from the stored runs."""
        counter, wait = self._process()
        wait(job_runs.install(counter, self.desk))
        lines = ["# TYPE recovered_total counter"]
        for reason, count in job_runs.recovered(self.desk).items():
            lines.append(f'recovered_total{{reason="{reason}"}} {count}')
        return Answer(HTTPStatus.OK, "\n".join([*lines, ""]), kind=METRICS)

    def _runs(self, query: str) -> Answer:
        counter, wait = self._process()
        wait(job_runs.install(counter, self.desk))
        rows = job_runs.latest(self.desk, RUNS)
        schedules = [
            (schedule, wait(counter.schedules.history(schedule.name, limit=SLOTS)))
            for schedule in wait(counter.schedules.list())
        ]
        names = {schedule.name for schedule, _ in schedules}
        note = _claimed(query, names)
        return Answer(HTTPStatus.OK, page.runs(rows, schedules, self._clock.now(), note=note))

    def _claim(self, environ: dict[str, Any]) -> Answer:
        """Take the slot and store its job; the worker runs it."""
        _require_same_site(environ)
        name, slot = _asked(environ)
        counter, wait = self._process()
        try:
            wait(counter.schedules.run(name, slot))
        except ScheduleNotFound as error:
            raise _say(HTTPStatus.NOT_FOUND, str(error)) from error
        except SlotTaken as error:
            raise _say(HTTPStatus.CONFLICT, str(error)) from error
        except InvalidSchedule as error:
            raise _say(HTTPStatus.BAD_REQUEST, str(error)) from error
        taken = urlencode({"claimed": name, "slot": f"{slot.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"})
        return Answer(HTTPStatus.SEE_OTHER, location=f"/runs?{taken}")


def main(argv: Sequence[str] | None = None) -> None:
    """Serve the pages without Gunicorn, for development."""
    parser = argparse.ArgumentParser(prog="python -m daily_brief.web", description=main.__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path())
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args(argv)
    with make_server("127.0.0.1", asked.port, Web(asked.folder), WSGIServer) as server:
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _health() -> Answer:
    told = {
        "status": "ok",
        "role": "web",
        "topology": TOPOLOGY,
        "guaranteed": GUARANTEED,
        "not_guaranteed": NOT_GUARANTEED,
    }
    return Answer(HTTPStatus.OK, json.dumps(told), kind=JSON)


def _asked(environ: dict[str, Any]) -> tuple[str, datetime]:
    """Parse the job and the slot of a request; the slot is required (S0 10)."""
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdigit() or int(length) > MOST_BODY:
        raise _say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {MOST_BODY} bytes are read.")
    form = parse_qs(environ["wsgi.input"].read(int(length)).decode("utf-8", "replace"))
    name, slot = (form.get(field, [""])[0].strip() for field in ("job_name", "scheduled_for"))
    if not name or not slot:
        raise _say(HTTPStatus.BAD_REQUEST, "Give job_name and scheduled_for, the slot to claim.")
    try:
        at = datetime.fromisoformat(slot)
    except ValueError as error:
        told = f"scheduled_for is {slot[:40]!r}; write it as 2026-01-05T09:00, in UTC."
        raise _say(HTTPStatus.BAD_REQUEST, told) from error
    return name, at if at.tzinfo else at.replace(tzinfo=UTC)


def _claimed(query: str, names: Collection[str]) -> str:
    """Return what a claim is answered with, from the address that it led to."""
    given = parse_qs(query)
    name, slot = (given.get(field, [""])[0] for field in ("claimed", "slot"))
    if name not in names or not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", slot):
        return ""
    at = f"{slot[:10]} {slot[11:19]} UTC"
    return f"The slot {at} of {name} is claimed. The worker runs it; reload the page to follow it."


def _require_same_site(environ: dict[str, Any]) -> None:
    """Refuse requests from other sites, which could take slots through a user's browser."""
    origin = environ.get("HTTP_ORIGIN")
    if origin is not None and urlsplit(origin).netloc != environ.get("HTTP_HOST"):
        raise _say(HTTPStatus.FORBIDDEN, "This form comes from another site; use the one at /runs.")


def _say(status: HTTPStatus, text: str) -> Answer:
    return Answer(status, page.message(status.phrase, text))


def _refusal() -> WebRunsNoJobs:
    return WebRunsNoJobs(
        "the web process runs no jobs and no schedules; start the worker: "
        "outlast worker daily_brief.worker:app"
    )


application: Final = Web(Path())
"""The brief of the current folder, for Gunicorn."""

if __name__ == "__main__":
    main()
