"""What the daily brief takes from feeds: plain articles, and nothing that a server has in mind."""

from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from daily_brief import feeds, samples
from daily_brief.config import MOST_FEEDS, BadConfig, Feed, load
from daily_brief.feeds import FeedError, fetch, parse, plain
from daily_brief.samples import Item, atom, rss, serve

AT = datetime(2026, 1, 5, 8, tzinfo=UTC)
ITEM = Item(
    url="https://a.example/1", title="Fish & chips <i>up</i>", summary="<p>Two\n words", at=AT
)


def still() -> int:
    return 0


def got(address: str, clock: Callable[[], int] = still) -> list[feeds.Article]:
    return fetch(Feed(name="a", url=address), clock)


@pytest.mark.parametrize("form", [rss, atom])
def test_rss_and_atom_give_the_same_article(form: Callable[[str, list[Item]], bytes]) -> None:
    [article] = parse(form("A", [ITEM]))

    assert article == feeds.Article(
        url="https://a.example/1", title="Fish & chips up", summary="Two words", published_at=AT
    )


@pytest.mark.parametrize(
    "link",
    ["javascript:alert(1)", "file:///etc/passwd", "ftp://a/b", "", "https://", "x" * 3000, "//a/b"],
)
def test_an_entry_without_a_web_address_is_left_out(link: str) -> None:
    odd = Item(url=link, title="T", summary="", at=AT)

    assert parse(rss("A", [odd, ITEM])) == parse(rss("A", [ITEM]))


def test_an_entry_without_a_title_is_left_out() -> None:
    assert parse(rss("A", [Item(url="https://a/", title="<b></b>", summary="", at=AT)])) == []


@pytest.mark.parametrize("text", [b"", b"<html><p>No feed</p></html>", b"\x00\xff" * 50, b"{}"])
def test_what_is_no_feed_is_refused(text: bytes) -> None:
    with pytest.raises(FeedError, match="neither RSS nor Atom"):
        parse(text)


def test_a_date_that_is_none_is_left_out() -> None:
    text = rss("A", [ITEM]).replace(b"Mon, 05 Jan 2026", b"Someday, 99 Jan")

    [article] = parse(text)

    assert article.published_at is None


def test_a_feed_without_articles_is_none_the_worse() -> None:
    assert parse(rss("A", [])) == []


def test_a_body_that_names_a_file_is_not_that_file(tmp_path: Path) -> None:
    """feedparser would open it: what a server sends must not choose what we read."""
    secret = tmp_path / "secret.xml"
    secret.write_bytes(rss("A", [ITEM]))

    with pytest.raises(FeedError):
        parse(str(secret).encode())


def test_entities_that_would_fill_the_memory_are_refused() -> None:
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    head = f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY e0 "ha">{levels}]>'.encode()

    with pytest.raises(FeedError, match="declares entities"):
        parse(head + rss("&e11;", [ITEM]).partition(b"?>")[2])


def test_no_more_articles_are_taken_than_a_bound() -> None:
    many = [Item(url=f"https://a.example/{n}", title="T", summary="", at=AT) for n in range(250)]

    assert len(parse(rss("A", many))) == feeds.MOST_ARTICLES


@pytest.mark.parametrize(
    ("text", "most", "bare"),
    [
        ("<b>one</b>&nbsp;two\x00three", 99, "one two three"),
        ("one two three", 9, "one two…"),
        ("x" * 50, 10, "x" * 9 + "…"),
        ("<" * 200_000, 10, "<" * 9 + "…"),
        ("a &lt;script&gt; b", 99, "a <script> b"),
    ],
)
def test_text_is_plain_and_bounded(text: str, most: int, bare: str) -> None:
    assert plain(text, most) == bare


def test_a_server_that_fails_is_not_there_too_large_or_too_slow_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter(range(0, 10**9, 20_000_000))
    monkeypatch.setattr(feeds, "MOST_BYTES", 2**20)
    pages = {"/large": lambda: b"x" * (2**20 + 1), "/slow": lambda: b"y" * (3 * feeds.CHUNK)}

    with serve(pages) as address:
        for path, clock, why in (
            ("/none", still, "its server answers 500"),
            ("/large", still, "is larger than 1 MiB"),
            ("/slow", lambda: next(ticks), "takes longer than 30 s"),
        ):
            with pytest.raises(FeedError, match=why):
                got(f"{address}{path}", clock)
    with pytest.raises(FeedError, match="cannot be reached"):
        got(address)


def test_a_redirect_leads_to_the_web_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "feed.xml"
    target.write_bytes(rss("A", [ITEM]))

    def redirecting(pages: samples.Pages) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/feed":
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(target.read_bytes())
                    return
                self.send_response(302)
                self.send_header("Location", "/feed" if self.path == "/ok" else target.as_uri())
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        return Handler

    monkeypatch.setattr(samples, "_handler", redirecting)
    with serve({}) as address:
        assert len(got(f"{address}/ok")) == 1
        with pytest.raises(FeedError):
            got(f"{address}/file")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("feeds = 3", "feeds"),
        ('[feeds]\na = "file:///etc/passwd"', "feeds"),
        ('[feeds]\na = "https://a b/"', "feeds"),
        ("keep_days = 0\n[feeds]", "keep_days"),
        ('keep = 3\n[feeds]\na = "https://a/"', "keep"),
        ("[feeds", "brief.toml"),
        ("[feeds]\n" + "\n".join(f'f{n} = "https://a/"' for n in range(MOST_FEEDS + 1)), "feeds"),
    ],
)
def test_settings_that_cannot_be_are_named(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "brief.toml").write_text(text)

    with pytest.raises(BadConfig, match=why):
        load(tmp_path)
