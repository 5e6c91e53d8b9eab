"""Fetch RSS and Atom feeds, with limits for size and time."""

import html
import re
import urllib.error
import urllib.request
from calendar import timegm
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from io import BytesIO
from typing import Any, Final

import feedparser  # type: ignore[import-untyped]  # has no types of its own

from .config import Feed

MOST_BYTES: Final = 5 * 2**20
MOST_ARTICLES: Final = 200
MOST_SECONDS: Final = 30.0
SILENCE: Final = 10.0
CHUNK: Final = 2**16
MOST_URL: Final = 2048
MOST_TITLE: Final = 300
MOST_SUMMARY: Final = 1000
AGENT: Final = "daily-brief (an example of Outlast)"
MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """An article of a feed; its texts are plain, without markup."""

    url: str
    title: str
    summary: str
    published_at: datetime | None


class FeedError(Exception):
    """A feed cannot be fetched or parsed; other feeds are not affected."""


def fetch(feed: Feed, monotonic: Callable[[], int]) -> list[Article]:
    """Return the current articles of a feed in its order; FeedError if it cannot be fetched."""
    try:
        return parse(_download(feed.url, monotonic))
    except urllib.error.HTTPError as error:
        error.close()
        raise FeedError(f"its server answers {error.code}") from error
    except urllib.error.URLError as error:
        raise FeedError(f"cannot be reached: {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise FeedError(f"cannot be read: {error}") from error


def parse(text: bytes) -> list[Article]:
    """Parse a feed; FeedError if it is invalid. Entries without URL or title are skipped.

    The parser gets a stream: given bytes, it takes those that name a file for that file.
    """
    if b"<!ENTITY" in text:  # which can be made to unfold to more than any memory holds
        raise FeedError("declares entities of its own, which no feed needs")
    found = feedparser.parse(BytesIO(text), sanitize_html=True, resolve_relative_uris=False)
    if not found.entries and (found.bozo or not found.get("version")):
        raise FeedError("what came is neither RSS nor Atom")
    articles = [_article(entry) for entry in found.entries[:MOST_ARTICLES]]
    return [article for article in articles if article is not None]


def _download(url: str, monotonic: Callable[[], int]) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": AGENT})  # noqa: S310 - config allows http(s)
    end = monotonic() + MOST_SECONDS * MICROSECONDS
    text = b""
    with _opener().open(request, timeout=SILENCE) as answer:
        while chunk := answer.read1(CHUNK):
            text += chunk
            if len(text) > MOST_BYTES:
                raise FeedError(f"is larger than {MOST_BYTES // 2**20} MiB")
            if monotonic() > end:
                raise FeedError(f"takes longer than {MOST_SECONDS:.0f} s")
    return text


def _opener() -> urllib.request.OpenerDirector:
    """Allow HTTP(S) only, also after a redirect."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
    ):
        opener.add_handler(handler())
    return opener


def _article(entry: Any) -> Article | None:
    url, title = str(entry.get("link", "")).strip(), plain(entry.get("title", ""), MOST_TITLE)
    if not re.match(r"https?://[^\s/]", url) or len(url) > MOST_URL or not title:
        return None
    return Article(
        url=url,
        title=title,
        summary=plain(entry.get("summary", ""), MOST_SUMMARY),
        published_at=_published(entry),
    )


def _published(entry: Any) -> datetime | None:
    # Not `entry.get`, which warns when it looks for one of them in the other's place.
    parsed = dict.get(entry, "published_parsed") or dict.get(entry, "updated_parsed")
    try:
        return None if parsed is None else datetime.fromtimestamp(timegm(parsed), UTC)
    except (ValueError, OverflowError, OSError):  # a year that no clock has
        return None


def plain(text: str, most: int) -> str:
    """Remove markup, collapse spaces, and truncate at a word."""
    bare = html.unescape(re.sub(r"<[^<>]*>", " ", text))
    bare = " ".join(re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]", " ", bare).split())
    if len(bare) <= most:
        return bare
    return f"{bare[: most - 1].rpartition(' ')[0] or bare[: most - 1]}…"
