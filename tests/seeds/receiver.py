"""What Sentry is for its client: a server that takes envelopes, here on a port of its own."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver(ThreadingHTTPServer):
    """Keeps every event it is sent; `status` is what it answers from now on."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Endpoint)
        self.status = 200
        self.asked: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.raw: list[str] = []

    @property
    def dsn(self) -> str:
        return f"http://a-key@127.0.0.1:{self.server_port}/7"


class _Endpoint(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.asked.append(self.path)
        self.server.raw.append(body.decode())
        _, *items = body.split(b"\n")
        for head, payload in zip(items[::2], items[1::2], strict=False):
            if json.loads(head)["type"] == "event":
                self.server.events.append(json.loads(payload))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not on our terminal."""


@contextmanager
def sentry_receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
