"""Settings in `brief.toml`: the feeds and the retention of articles."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

FILE: Final = "brief.toml"
DESK_FILE: Final = "brief.db"
MOST_FEEDS: Final = 200

Name = Annotated[str, Field(min_length=1, max_length=80)]
Url = Annotated[str, Field(pattern=r"^https?://[^\s/]+\S*$", max_length=2048)]
Purgeable = Literal["cluster_articles", "raw_articles", "clusters", "feeds"]
"""The allow-list; it has neither the tables of published briefs nor the audit log."""

ALLOWED: Final[tuple[Purgeable, ...]] = ("cluster_articles", "raw_articles", "clusters", "feeds")
"""The order of purging: links before the rows they refer to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A source of articles."""

    name: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The validated settings."""

    feeds: tuple[Feed, ...]
    keep: timedelta
    purge: tuple[Purgeable, ...]


def store_url(folder: Path) -> str:
    """Return the URL of Outlast's store, which is in the file of the news."""
    return f"sqlite:///{folder / DESK_FILE}?adopt=true"


class BadConfig(ValueError):
    """`brief.toml` is invalid."""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keep_days: Annotated[int, Field(ge=1, le=3650)] = 14
    purge: tuple[Purgeable, ...] = ALLOWED
    feeds: Annotated[Mapping[Name, Url], Field(max_length=MOST_FEEDS)]


def load(folder: Path) -> Config:
    """Read `brief.toml` of the folder, or the default one; BadConfig if it is invalid."""
    own = folder / FILE
    path = own if own.exists() else Path(__file__).with_name(FILE)
    try:
        said = _File.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise BadConfig(f"{path} cannot be used; correct this: {error}") from error
    feeds = tuple(Feed(name=name, url=url) for name, url in said.feeds.items())
    return Config(feeds=feeds, keep=timedelta(days=said.keep_days), purge=said.purge)
