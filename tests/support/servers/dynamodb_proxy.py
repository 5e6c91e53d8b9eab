"""Proxy before DynamoDB Local: records requests, reports the time as AWS does, and refuses."""

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
class DynamoDBProxy:
    """`proxy.refuse("ThrottlingException", "Rate exceeded")`, until it is opened again.

    `asked` counts requests by the name of their API; `refused` those not passed on. `ahead` is the
    error of its clock, `key` the one access key that is still valid.
    """

    behind: str
    endpoint: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    ahead: timedelta = timedelta(0)
    refusal: tuple[str, str, HTTPStatus] | None = None
    key: str | None = None
    met: threading.Event = field(default_factory=threading.Event)

    def refuse(self, code: str, reported: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        """Refuse every request with that error; `met` is set after the first."""
        self.met.clear()
        self.refusal = code, reported, status

    def open(self) -> None:
        self.refusal = None

    def answer(
        self, behind: "ServerConnection", api: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, bytes]:
        self.asked[api] += 1
        refusal = self.refusal or self._expired(headers["Authorization"])
        if refusal is None:
            return behind.ask(_with_test_credentials(headers), body)
        code, reported, status = refusal
        self.refused += 1
        self.met.set()
        about = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": reported}
        return status, json.dumps(about).encode()

    def _expired(self, shown: str) -> tuple[str, str, HTTPStatus] | None:
        if self.key is None or f"Credential={self.key}/" in shown:
            return None
        reported = "The security token included in the request is expired"
        return "ExpiredTokenException", reported, HTTPStatus.BAD_REQUEST


def _with_test_credentials(headers: dict[str, str]) -> dict[str, str]:
    """With the key of the tests: DynamoDB Local keeps other tables for other keys."""
    key = CREDENTIALS["AWS_ACCESS_KEY_ID"]
    shown = re.sub("Credential=[^/]+/", f"Credential={key}/", headers["Authorization"])
    return {**headers, "Authorization": shown}


@contextmanager
def dynamodb_proxy(behind: str) -> Iterator[DynamoDBProxy]:
    """A proxy on loopback before that endpoint; give stores `proxy.endpoint`."""
    proxy = DynamoDBProxy(behind)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy))
    server.daemon_threads = True
    proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(proxy: DynamoDBProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.behind = ServerConnection(proxy.behind)

        def finish(self) -> None:
            super().finish()
            self.behind.close()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            api = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
            status, answer = proxy.answer(self.behind, api, dict(self.headers.items()), body)
            now = format_datetime(datetime.now(UTC) + proxy.ahead, usegmt=True)
            head = f"HTTP/1.1 {status} -\r\nContent-Type: {JSON}\r\nDate: {now}\r\n"
            # In one piece: otherwise the reply waits for a delayed acknowledgement.
            self.wfile.write(f"{head}Content-Length: {len(answer)}\r\n\r\n".encode() + answer)

        def log_message(self, *_: object) -> None:
            """Nothing is to be said."""

    return Handler


class ServerConnection:
    """Connection of one client to the server behind the proxy."""

    def __init__(self, endpoint: str) -> None:
        where = urlsplit(endpoint)
        assert where.hostname is not None
        self._connection = HTTPConnection(where.hostname, where.port, timeout=PATIENCE)

    def ask(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Return the server's reply, or that of a load balancer if the server is down."""
        try:
            self._connection.request("POST", "/", body, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException):
            self.close()
            return HTTPStatus.SERVICE_UNAVAILABLE, b"{}"

    def close(self) -> None:
        self._connection.close()
