"""The pages of the daily brief: readable, and without foreign markup."""

import re
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser

import pytest

from daily_brief import page
from daily_brief.edition import Edition, FeedHealth, Source, Story

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
EVIL = '"><script>alert(1)</script>&'


def source(number: int, *, text: str = "T", hours: float = 1) -> Source:
    return Source(
        id=number,
        url=f"https://a.example/{number}?x=1&y={'%22' if text == 'T' else text}",
        feed=f"Feed {number}" if text == "T" else text,
        title=text,
        summary=text * number,
        published_at=NOW - timedelta(hours=hours),
    )


def edition(*stories: Story, is_draft: bool = False) -> Edition:
    when = None if is_draft else NOW
    return Edition(day=date(2026, 1, 5), published_at=when, stories=stories)


def story(count: int = 1, **over: str) -> Story:
    sources = tuple(source(n, **over) for n in range(1, count + 1))
    return Story(cluster_id=1, title=over.get("text", "A title"), sources=sources)


class Tags(HTMLParser):
    """Every tag that a browser would see, and whether each is closed."""

    VOID = frozenset({"meta", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.attributes: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_the_first_story_leads_and_the_others_follow() -> None:
    text = page.front(edition(story(3), story(), story()), [], ["2026-01-05"], NOW)

    assert text.count('<article class="lead">') == 1
    assert text.count("<article>") == 2
    assert "Monday, 05 January 2026" in text
    assert "3 stories from 5 articles" in text
    assert "3 sources" in text
    assert "Published 09:00 UTC" in text


def test_what_others_wrote_is_text_wherever_it_stands() -> None:
    feed = FeedHealth(name=EVIL, checked_at=NOW, error=EVIL)
    times = ("scheduled_for", "started_at", "finished_at")
    row = dict.fromkeys(("job_name", *times, "status", "worker_instance", "error_message"), EVIL)

    for text in (
        page.front(edition(story(2, text=EVIL), story(1, text=EVIL)), [feed], [], NOW),
        page.runs([row], [], NOW, note=EVIL),
        page.message(EVIL, EVIL),
    ):
        tags = Tags(text)
        assert "script" not in tags.seen
        assert not [name for name in tags.attributes if name.startswith("on")]
        assert "&lt;script&gt;" in text


def test_a_day_without_news_says_so() -> None:
    text = page.front(edition(is_draft=True), [], [], NOW)

    Tags(text)
    assert "No news yet" in text
    assert "A draft, not yet published" in text


def test_a_feed_that_failed_is_named_with_its_reason() -> None:
    well = FeedHealth(name="Well", checked_at=NOW, error=None)
    ill = FeedHealth(name="Ill", checked_at=NOW, error="its server answers 500")

    text = page.front(edition(story()), [well, ill], [], NOW)

    assert "Ill: its server answers 500" in text
    assert text.count('class="dot bad"') == 1


def test_of_many_articles_some_are_listed_and_the_others_counted() -> None:
    text = page.front(edition(story(9)), [], [], NOW)

    assert text.count("<li><b>") == page.SHOWN
    assert "and 4 more" in text


@pytest.mark.parametrize(
    ("hours", "reported"),
    [(0, "0 min ago"), (-1, "0 min ago"), (0.5, "30 min ago"), (5, "5 h ago"), (72, "3 days ago")],
)
def test_ages_are_told_as_people_do(hours: float, reported: str) -> None:
    one = Story(cluster_id=1, title="T", sources=(source(1, hours=hours),))

    assert reported in page.front(edition(one), [], [], NOW)


def test_a_page_needs_nothing_else_and_its_policy_fits_its_style() -> None:
    text = page.front(edition(story()), [], [], NOW)

    assert re.findall(r"(?:src|@import|url\()", text) == []
    assert f"<style>{page.style()}</style>" in text
    assert re.search(r"style-src 'sha256-[\w+/]{43}='", page.policy())
    assert "</style" not in page.style()
