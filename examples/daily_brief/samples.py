"""A local feed server with sample news as RSS and Atom, and one broken feed."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

ATOM: Final = "http://www.w3.org/2005/Atom"
Pages = Mapping[str, Callable[[], bytes]]
"""Content per path; a path that raises, or is missing, is an error for the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One article of a sample feed."""

    url: str
    title: str
    summary: str
    at: datetime


@contextmanager
def serve(pages: Pages) -> Iterator[str]:
    """Serve the pages on a free port of the loopback interface; yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(pages))
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,), name="samples", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def sample_feeds(now: datetime) -> Iterator[dict[str, str]]:
    """Serve the sample feeds with current dates; yield the name and the address of each."""
    told = tomllib.loads(Path(__file__).with_name("samples.toml").read_text("utf-8"))["feed"]
    pages: dict[str, Callable[[], bytes]] = {}
    names = {_path(feed["name"]): feed["name"] for feed in told}
    for feed in told:
        items = [_item(feed["name"], item, now) for item in feed["items"]]
        if feed["format"] in WRITERS:
            pages[_path(feed["name"])] = _page(feed["format"], feed["name"], items)
    with serve(pages) as address:
        yield {name: f"{address}{path}" for path, name in names.items()}


def rss(name: str, items: list[Item]) -> bytes:
    """An RSS 2.0 feed."""
    entries = "".join(
        f"<item><title>{escape(item.title)}</title><link>{escape(item.url)}</link>"
        f"<description>{escape(item.summary)}</description>"
        f"<pubDate>{format_datetime(item.at)}</pubDate></item>"
        for item in items
    )
    head = '<?xml version="1.0" encoding="utf-8"?><rss version="2.0"><channel>'
    return f"{head}<title>{escape(name)}</title>{entries}</channel></rss>".encode()


def atom(name: str, items: list[Item]) -> bytes:
    """An Atom feed."""
    entries = "".join(
        f"<entry><title>{escape(item.title)}</title><id>{escape(item.url)}</id>"
        f'<link href="{escape(item.url)}"/><summary>{escape(item.summary)}</summary>'
        f"<published>{item.at.isoformat()}</published></entry>"
        for item in items
    )
    head = f'<?xml version="1.0" encoding="utf-8"?><feed xmlns="{ATOM}">'
    return f"{head}<title>{escape(name)}</title>{entries}</feed>".encode()


WRITERS: Final = {"rss": rss, "atom": atom}


def _page(form: str, name: str, items: list[Item]) -> Callable[[], bytes]:
    return lambda: WRITERS[form](name, items)


def _path(name: str) -> str:
    return f"/{name.lower().replace(' ', '-')}.xml"


def _item(feed: str, told: Mapping[str, Any], now: datetime) -> Item:
    host = feed.lower().replace(" ", "-")
    return Item(
        url=f"https://{host}.example/{told['slug']}",
        title=told["title"],
        summary=told["summary"],
        at=now - timedelta(hours=told["hours"]),
    )


def _handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            if page is None:
                self.send_error(500)
                return
            text = page()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    return Handler
