"""The HTML pages: an edition and its runs, without external resources."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

from outlast import Schedule, SlotRecord

from .edition import Edition, FeedHealth, Source, Story

TITLE: Final = "K2 Daily Brief"
SHOWN: Final = 5
"""How many articles of a story are listed; the others are counted."""


def front(edition: Edition, feeds: Sequence[FeedHealth], days: Sequence[str], now: datetime) -> str:
    """Render an edition."""
    [*lead], rest = edition.stories[:1], edition.stories[1:]
    stories = "".join([*(_lead(each, now) for each in lead), _grid(rest, now)])
    told = stories or '<p class="empty">No news yet. The first ones come with rss_ingestion.</p>'
    when = edition.published_at
    kind = "A draft, not yet published" if when is None else f"Published {when:%H:%M} UTC"
    here = "now" if when is None else edition.day.isoformat()
    count = sum(len(story.sources) for story in edition.stories)
    line = f"{len(edition.stories)} stories from {count} articles"
    return _page(
        f"{TITLE}, {edition.day:%d %B %Y}",
        f"{_header(f'{edition.day:%A, %d %B %Y}', kind, line)}{_nav(here, days)}"
        f"<main>{told}</main>{_footer(feeds)}",
    )


def runs(
    rows: Sequence[Mapping[str, Any]],
    schedules: Sequence[tuple[Schedule, Sequence[SlotRecord]]],
    now: datetime,
    *,
    note: str = "",
) -> str:
    """Render `job_runs`, the schedules with their latest slots, and a form to take a slot."""
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    return _page(
        f"{TITLE}: runs",
        f"{_header(f'{now:%A, %d %B %Y}', f'{now:%H:%M:%S} UTC', 'How the brief is made')}"
        f"{_nav('runs', [])}<main>{said}<h3>Schedules</h3>{_schedules(schedules)}"
        f"<h3>Ask for a run</h3>{_form(schedules, now)}"
        f"<h3>job_runs</h3>{_job_runs(rows)}</main>",
    )


def message(title: str, text: str) -> str:
    """Render a page with one message."""
    body = f'<main><h3>{escape(title)}</h3><p class="note">{escape(text)}</p></main>'
    return _page(f"{TITLE}: {title}", f"{_header('', '', title)}{_nav('', [])}{body}")


@cache
def style() -> str:
    """Return the style sheet, which every page includes."""
    return Path(__file__).with_name("style.css").read_text("utf-8")


@cache
def policy() -> str:
    """Return the content security policy of the pages."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'"


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style()}</style></head><body>{body}</body></html>\n"
    )


def _header(left: str, right: str, below: str) -> str:
    return (
        f'<header><div class="line small"><span>{escape(left)}</span>'
        f'<span>{escape(right)}</span></div><h1><a href="/">{TITLE}</a></h1>'
        f"<p>{escape(below)}</p></header>"
    )


def _nav(here: str, days: Sequence[str]) -> str:
    links = [("/", "Brief", "brief"), *((f"/briefs/{day}", day, day) for day in days)]
    links += [("/now", "Now", "now"), ("/runs", "Runs", "runs")]
    return f"<nav>{''.join(_link(where, text, key == here) for where, text, key in links)}</nav>"


def _link(where: str, text: str, is_here: bool) -> str:
    mark = ' aria-current="page"' if is_here else ""
    return f'<a href="{escape(where)}"{mark}>{escape(text)}</a>'


def _lead(story: Story, now: datetime) -> str:
    return (
        f'<article class="lead"><div>{_told(story)}</div>'
        f"<aside>{_sources(story.sources, now)}</aside></article>"
    )


def _grid(stories: Sequence[Story], now: datetime) -> str:
    if not stories:
        return ""
    told = (f"<article>{_told(story)}{_sources(story.sources, now)}</article>" for story in stories)
    return f'<section class="grid">{"".join(told)}</section>'


def _told(story: Story) -> str:
    first, feeds = story.sources[0], len(story.feeds)
    kicker = f"{feeds} sources" if feeds > 1 else first.feed
    return (
        f'<p class="kicker">{escape(kicker)}</p>'
        f'<h2><a href="{escape(first.url)}" rel="noreferrer">{escape(story.title)}</a></h2>'
        f'<p class="text">{escape(story.summary)}</p>'
    )


def _sources(sources: Sequence[Source], now: datetime) -> str:
    if len(sources) == 1:  # which the headline leads to
        return f'<p class="soft small">{_ago(now, sources[0].published_at)}</p>'
    lines = [
        f"<li><b>{escape(source.feed)}</b> "
        f'<a href="{escape(source.url)}" rel="noreferrer">{escape(source.title)}</a> '
        f"<time>{_ago(now, source.published_at)}</time></li>"
        for source in sources[:SHOWN]
    ]
    if len(sources) > SHOWN:
        lines.append(f'<li class="soft">and {len(sources) - SHOWN} more</li>')
    return f'<ul class="sources">{"".join(lines)}</ul>'


def _ago(now: datetime, then: datetime) -> str:
    minutes = max(0, int((now - then).total_seconds() // 60))
    if minutes < 60:  # noqa: PLR2004 - minutes of an hour
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 48 * 60 else f"{minutes // 1440} days ago"


def _footer(feeds: Sequence[FeedHealth]) -> str:
    if not feeds:
        return ""
    return f"<footer>Feeds<ul>{''.join(map(_health, feeds))}</ul></footer>"


def _health(feed: FeedHealth) -> str:
    mark, why = (
        ("", f"asked at {feed.checked_at:%H:%M} UTC")
        if feed.error is None
        else (
            " bad",
            feed.error,
        )
    )
    trouble = "" if feed.error is None else f": {escape(feed.error)}"
    name = escape(feed.name)
    return f'<li title="{escape(why)}"><span class="dot{mark}"></span>{name}{trouble}</li>'


def _schedules(schedules: Sequence[tuple[Schedule, Sequence[SlotRecord]]]) -> str:
    if not schedules:
        return '<p class="note">There are none yet: the worker brings them when it starts.</p>'
    rows = [
        [
            escape(schedule.name),
            escape(str(schedule.plan.rule)),
            _moment(schedule.next_slot),
            ", ".join(_slot(slot) for slot in slots) or "none yet",
        ]
        for schedule, slots in schedules
    ]
    return _table(["job_name", "rule", "next slot", "latest slots"], rows)


def _slot(slot: SlotRecord) -> str:
    outcome = escape(slot.outcome)
    return f'{slot.slot.at:%d %b %H:%M} <span class="{outcome}">{outcome}</span>'


def _form(schedules: Sequence[tuple[Schedule, Sequence[SlotRecord]]], now: datetime) -> str:
    names = "".join(f"<option>{escape(schedule.name)}</option>" for schedule, _ in schedules)
    return (
        '<form method="post" action="/runs"><label>job_name'
        f'<select name="job_name" required>{names}</select></label>'
        f'<label>scheduled_for (UTC)<input name="scheduled_for" value="{now:%Y-%m-%dT%H:%M}" '
        "required></label><button>Claim this slot</button>"
        '<span class="soft">The worker runs it; a slot that was claimed is not run again.</span>'
        "</form>"
    )


def _job_runs(rows: Sequence[Mapping[str, Any]]) -> str:
    names = ["job_name", "scheduled_for", "started_at", "finished_at", "status"]
    lines = [
        [
            *(escape(_short(str(row[name] or ""))) for name in names[:-1]),
            f'<span class="{escape(row["status"])}">{escape(row["status"])}</span>',
            escape(row["worker_instance"] or ""),
            escape((row["error_message"] or "").strip().rpartition("\n")[2]),
        ]
        for row in rows
    ]
    return _table([*names, "worker_instance", "error_message"], lines) if lines else "<p>None.</p>"


def _short(stamp: str) -> str:
    """Format a timestamp for reading: 2026-01-05 09:00:00."""
    is_stamp = stamp.endswith("Z") and stamp[10:11] == "T"
    return stamp[:19].replace("T", " ") if is_stamp else stamp


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render a table; on a phone each row is a card, whose lines name their column."""
    top = "".join(f"<th>{name}</th>" for name in head)
    lines = "".join(f"<tr>{_cells(head, row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr class="head">{top}</tr>{lines}</table></div>'


def _cells(head: Sequence[str], row: Sequence[str]) -> str:
    wide = [""] * (len(head) - 1) + [' class="wide"']
    cells = zip(wide, head, row, strict=True)
    return "".join(f'<td{kind} data-name="{name}">{cell}</td>' for kind, name, cell in cells)


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M}"
