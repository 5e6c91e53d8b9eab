"""RSS ingestion: store the articles of every feed in `raw_articles`, each URL once."""

import logging
import sqlite3
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from .config import Feed
from .desk import Desk, Tx, stamp
from .feeds import Article, FeedError

log = logging.getLogger("daily_brief")

Fetch = Callable[[Feed], list[Article]]
MAX_FETCHES: Final = 8
MOST_ERROR: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """Counts of one ingestion."""

    new: int = 0
    duplicates: int = 0
    failed_feeds: int = 0


class NoFeedAnswered(Exception):
    """Every feed failed, so the cause is this host or the network, and the run must fail."""


def ingest(
    desk: Desk,
    feeds: Sequence[Feed],
    fetch: Fetch,
    now: Callable[[], datetime],
    tell: Callable[[int], None] = lambda _: None,
) -> Ingested:
    """Ingest every feed; the failure of one is recorded and does not stop the others. Idempotent.

    Each feed is one transaction. `tell` hears how many feeds are done, after each. Only what the
    database calls a duplicate is ignored; any other error of it leaves here.
    """
    done = Ingested()
    with closing(_fetched(feeds, fetch)) as fetched:
        for count, (feed, found) in enumerate(fetched, start=1):
            done = _sum(done, _take(desk, feed, found, now()))
            tell(count)
    if feeds and done.failed_feeds == len(feeds):
        raise NoFeedAnswered(f"none of the {len(feeds)} feeds could be had; see the table feeds")
    return done


def _fetched(
    feeds: Sequence[Feed], fetch: Fetch
) -> Generator[tuple[Feed, list[Article] | FeedError], None, None]:
    """Fetch the feeds concurrently and return the results in the order of the feeds."""

    def one(feed: Feed) -> list[Article] | FeedError:
        try:
            return fetch(feed)
        except FeedError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a parser that stumbles over one feed
            return FeedError(f"cannot be understood: {error!r}")

    pool = ThreadPoolExecutor(MAX_FETCHES, thread_name_prefix="feed")
    try:
        yield from zip(feeds, pool.map(one, feeds), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)  # do not wait for the remaining feeds


def _take(desk: Desk, feed: Feed, found: list[Article] | FeedError, now: datetime) -> Ingested:
    if isinstance(found, FeedError):
        _note_failure(desk, feed, found, now)
        return Ingested(failed_feeds=1)
    return _store(desk, feed, found, now)


def _store(desk: Desk, feed: Feed, articles: Sequence[Article], now: datetime) -> Ingested:
    with desk.writing() as tx:
        added = [_add(tx, feed, article, now) for article in articles]
        tx.run("feed_answered", name=feed.name, now=stamp(now))
    return Ingested(new=sum(added), duplicates=len(added) - sum(added))


def _add(tx: Tx, feed: Feed, article: Article, now: datetime) -> bool:
    """Add an article; return False for one that is or was there. Earlier ones stay."""
    published = min(article.published_at or now, now)  # some feeds write tomorrow's date
    try:
        added = tx.run(
            "add_article",
            url=article.url,
            feed=feed.name,
            title=article.title,
            summary=article.summary,
            published_at=stamp(published),
            now=stamp(now),
        )
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorname != "SQLITE_CONSTRAINT_UNIQUE":
            raise
        return False
    return added.rowcount == 1


def _note_failure(desk: Desk, feed: Feed, error: FeedError, now: datetime) -> None:
    with desk.writing() as tx:
        tx.run("feed_failed", name=feed.name, now=stamp(now), error=str(error)[:MOST_ERROR])
    facts = {"event": "feed_failed", "feed": feed.name}
    log.warning("feed_failed feed=%s; the table feeds says why", feed.name, extra={"facts": facts})


def _sum(one: Ingested, other: Ingested) -> Ingested:
    return Ingested(
        new=one.new + other.new,
        duplicates=one.duplicates + other.duplicates,
        failed_feeds=one.failed_feeds + other.failed_feeds,
    )
