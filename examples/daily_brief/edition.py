"""Editions: the published brief of a day, and the current draft."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Any, Final

from .desk import Desk, Tx, moment, stamp

STORIES: Final = 13
ARTICLES: Final = 12
"""How many stories an edition has at most, and how many articles of each."""

SPAN: Final = timedelta(hours=24)
DAYS: Final = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One article of a story."""

    id: int
    url: str
    feed: str
    title: str
    summary: str
    published_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One event with its articles, oldest first."""

    cluster_id: int
    title: str
    sources: tuple[Source, ...]

    @property
    def summary(self) -> str:
        """Return the longest summary of its articles."""
        return max((source.summary for source in self.sources), key=len)

    @property
    def feeds(self) -> tuple[str, ...]:
        """Return the names of its feeds, each once."""
        return tuple(dict.fromkeys(source.feed for source in self.sources))


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """The stories of a day; `published_at` is None for a draft."""

    day: date
    published_at: datetime | None
    stories: tuple[Story, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedHealth:
    """Result of the last fetch of a feed."""

    name: str
    checked_at: datetime
    error: str | None


def publish(desk: Desk, day: date, now: datetime) -> int:
    """Publish the edition of a day; return its number of stories, 0 if nothing was published."""
    with desk.writing() as tx:
        stories = _top(tx, now)
        if not stories or not tx.run("publish", day=day.isoformat(), now=stamp(now)).rowcount:
            return 0
        for place, story in enumerate(stories, start=1):
            for source in story.sources:
                tx.run(
                    "publish_item",
                    day=day.isoformat(),
                    place=place,
                    cluster=story.cluster_id,
                    article=source.id,
                )
    return len(stories)


def draft(desk: Desk, now: datetime) -> Edition:
    """Return the edition that would be published now."""
    with desk.reading() as tx:
        return Edition(day=now.date(), published_at=None, stories=tuple(_top(tx, now)))


def published(desk: Desk, day: str) -> Edition | None:
    """Return the edition of a day, or None."""
    with desk.reading() as tx:
        row = tx.run("brief", day=day).fetchone()
        if row is None:
            return None
        items = tx.run("items", day=day).fetchall()
    stories = [_story(list(rows)) for _, rows in groupby(items, key=lambda item: item["place"])]
    return Edition(
        day=date.fromisoformat(row["day"]),
        published_at=moment(row["published_at"]),
        stories=tuple(stories),
    )


def days(desk: Desk) -> list[str]:
    """Return the days of the latest editions, newest first."""
    with desk.reading() as tx:
        return [row["day"] for row in tx.run("days", most=DAYS)]


def feeds(desk: Desk) -> list[FeedHealth]:
    """Return the last result of every feed, sorted by name."""
    with desk.reading() as tx:
        return [
            FeedHealth(name=row["name"], checked_at=moment(row["checked_at"]), error=row["error"])
            for row in tx.run("feeds")
        ]


def _top(tx: Tx, now: datetime) -> list[Story]:
    since, until = stamp(now - SPAN), stamp(now)
    found = tx.run("top_clusters", since=since, until=until, most=STORIES).fetchall()
    return [
        Story(
            cluster_id=row["id"],
            title=row["title"],
            sources=tuple(
                _source(article)
                for article in tx.run(
                    "articles_of_cluster", cluster=row["id"], until=until, most=ARTICLES
                )
            ),
        )
        for row in found
    ]


def _story(rows: list[Any]) -> Story:
    first = rows[0]
    return Story(
        cluster_id=first["cluster_id"],
        title=first["cluster_title"],
        sources=tuple(_source(row) for row in rows),
    )


def _source(row: Any) -> Source:
    return Source(
        id=row["id"],
        url=row["url"],
        feed=row["feed"],
        title=row["title"],
        summary=row["summary"],
        published_at=moment(row["published_at"]),
    )
