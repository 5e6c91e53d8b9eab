"""A gate before DynamoDB Local: it notes what is asked, tells the time as AWS does, and refuses."""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

from outlast.testing.servers.dynamodb import CREDENTIALS

JSON: Final = "application/x-amz-json-1.0"
PATIENCE: Final = 120.0


@dataclass(slots=True)
class Gate:
    """`gate.refuse("ThrottlingException", "Rate exceeded")`, until it is opened again.

    `asked` counts the requests that came, by the name of their API; `refused` those that went no
    further. `ahead` is by how much its clock is wrong, `key` the one access key that is still good.
    """

    behind: str
    endpoint: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    ahead: timedelta = timedelta(0)
    refusal: tuple[str, str, HTTPStatus] | None = None
    key: str | None = None
    met: threading.Event = field(default_factory=threading.Event)

    def refuse(self, code: str, told: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        """Answer every request so; `met` is set when that has happened."""
        self.met.clear()
        self.refusal = code, told, status

    def open(self) -> None:
        self.refusal = None

    def answer(
        self, behind: "Behind", api: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, bytes]:
        self.asked[api] += 1
        refusal = self.refusal or self._expired(headers["Authorization"])
        if refusal is None:
            return behind.ask(_as_everybody(headers), body)
        code, told, status = refusal
        self.refused += 1
        self.met.set()
        about = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": told}
        return status, json.dumps(about).encode()

    def _expired(self, shown: str) -> tuple[str, str, HTTPStatus] | None:
        if self.key is None or f"Credential={self.key}/" in shown:
            return None
        told = "The security token included in the request is expired"
        return "ExpiredTokenException", told, HTTPStatus.BAD_REQUEST


def _as_everybody(headers: dict[str, str]) -> dict[str, str]:
    """With the key of the tests: DynamoDB Local keeps other tables for other keys."""
    key = CREDENTIALS["AWS_ACCESS_KEY_ID"]
    shown = re.sub("Credential=[^/]+/", f"Credential={key}/", headers["Authorization"])
    return {**headers, "Authorization": shown}


@contextmanager
def dynamodb_gate(behind: str) -> Iterator[Gate]:
    """A gate on loopback before that endpoint; give stores `gate.endpoint`."""
    gate = Gate(behind)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(gate))
    server.daemon_threads = True
    gate.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield gate
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(gate: Gate) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.behind = Behind(gate.behind)

        def finish(self) -> None:
            super().finish()
            self.behind.close()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            api = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
            status, answer = gate.answer(self.behind, api, dict(self.headers.items()), body)
            now = format_datetime(datetime.now(UTC) + gate.ahead, usegmt=True)
            head = f"HTTP/1.1 {status} -\r\nContent-Type: {JSON}\r\nDate: {now}\r\n"
            # In one piece, or the answer would wait for somebody's delayed acknowledgement.
            self.wfile.write(f"{head}Content-Length: {len(answer)}\r\n\r\n".encode() + answer)

        def log_message(self, *_: object) -> None:
            """Nothing is to be said."""

    return Handler


class Behind:
    """The server behind, as one client's connection reaches it."""

    def __init__(self, endpoint: str) -> None:
        where = urlsplit(endpoint)
        assert where.hostname is not None
        self._connection = HTTPConnection(where.hostname, where.port, timeout=PATIENCE)

    def ask(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """What it answers; where nobody answers, what a load balancer says then."""
        try:
            self._connection.request("POST", "/", body, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException):
            self.close()
            return HTTPStatus.SERVICE_UNAVAILABLE, b"{}"

    def close(self) -> None:
        self._connection.close()
