"""Event clustering: a deterministic grouping of articles about the same event."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from .desk import Desk, Tx, moment, stamp

WINDOW: Final = timedelta(hours=48)
"""Longest time between the first article of an event and another one."""

SHARED: Final = 2
ALIKE: Final = 0.5
"""Minimum number of shared words of two titles, and minimum share of the shorter one."""

TOGETHER: Final = 100
"""How many articles one transaction clusters."""

SHORT: Final = 3
STOP: Final = frozenset(
    """about after again all also amid and are back been before being but can could did does down
    for from get has have her his how into its just live may more most new not now off one other
    our out over said say says she should some still than that the their them then there they this
    those through too two under until was watch were what when where which while who why will with
    would you your year day week video first last make made""".split()  # noqa: SIM905 - to be read
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustered:
    """Counts of one clustering; `linked` counts inserted links."""

    judged: int = 0
    linked: int = 0
    opened: int = 0


def cluster(desk: Desk, now: datetime, tell: Callable[[int], None] = lambda _: None) -> Clustered:
    """Assign an event to every article without one, and to recent articles again.

    An article stays with its event for good. Judged again it is linked again, which the database
    takes for what it is: a link that is there. Safe to repeat, and safe beside another.
    """
    done, after = Clustered(), ("", "")
    while True:
        with desk.writing() as tx:
            rows = _batch(tx, after, now)
            near = Near(tx, [row for row in rows if row["cluster_id"] is None])
            for row in rows:
                done = _judge(tx, row, near, done)
        if not rows:
            return done
        after = rows[-1]["published_at"], rows[-1]["url"]
        tell(done.judged)


def _batch(tx: Tx, after: tuple[str, str], now: datetime) -> list[Any]:
    return tx.run(
        "articles_to_judge",
        after_published=after[0],
        after_url=after[1],
        since=stamp(now - WINDOW),
        most=TOGETHER,
    ).fetchall()


def _judge(tx: Tx, article: Any, near: "Near", done: Clustered) -> Clustered:
    """Link the article and count the link, in one transaction."""
    found, opened = article["cluster_id"], 0
    if found is None:
        found = near.likest(article["title"], moment(article["published_at"]))
    if found is None:
        found, opened = _open(tx, article, near), 1
    linked = tx.run("link", cluster=found, article=article["id"]).rowcount
    if linked:
        tx.run("count_link", cluster=found)
    return Clustered(
        judged=done.judged + 1, linked=done.linked + linked, opened=done.opened + opened
    )


def _open(tx: Tx, article: Any, near: "Near") -> int:
    url, title, at = article["url"], article["title"], article["published_at"]
    tx.run("open_cluster", key=url, title=title, opened_at=at)
    [(cluster_id,)] = tx.run("cluster_of_key", key=url)
    near.add(Event(id=cluster_id, key=url, title=title, opened_at=moment(at)))
    return int(cluster_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A cluster, represented by the title of its first article."""

    id: int
    key: str
    title: str
    opened_at: datetime


class Near:
    """Candidate events of one batch of articles, indexed by the words of their titles."""

    def __init__(self, tx: Tx, batch: Sequence[Any]) -> None:
        self._by_term: dict[str, list[Event]] = {}
        if not batch:
            return
        first, last = moment(batch[0]["published_at"]), moment(batch[-1]["published_at"])
        for row in tx.run("clusters_near", since=stamp(first - WINDOW), until=stamp(last + WINDOW)):
            self.add(Event(**{**dict(row), "opened_at": moment(row["opened_at"])}))

    def add(self, event: Event) -> None:
        for term in terms(event.title):
            self._by_term.setdefault(term, []).append(event)

    def likest(self, title: str, at: datetime) -> int | None:
        """Return the event with the most similar title; the oldest of equals."""
        found = {event for term in terms(title) for event in self._by_term.get(term, ())}
        ranked = [
            (-alike, event.opened_at, event.key, event.id)
            for event in found
            if abs(event.opened_at - at) <= WINDOW and (alike := likeness(title, event.title))
        ]
        return min(ranked)[-1] if ranked else None


def likeness(one: str, other: str) -> float:
    """Return the share of the shorter title that the longer one has; 0 below the minimum."""
    ours, theirs = terms(one), terms(other)
    shared = len(ours & theirs)
    alike = shared / min(len(ours), len(theirs)) if shared else 0.0
    return alike if shared >= SHARED and alike >= ALIKE else 0.0


@lru_cache(10_000)
def terms(title: str) -> frozenset[str]:
    """Return the significant words of a title, without case and plural."""
    words = (re.sub(r"['’]s?$", "", word) for word in re.findall(r"[\w'’]+", title.casefold()))  # noqa: RUF001 - as papers write it
    telling = {word for word in words if len(word) >= SHORT and word not in STOP}
    return frozenset(
        word[:-1] if len(word) > SHORT + 1 and word.endswith("s") else word for word in telling
    )
