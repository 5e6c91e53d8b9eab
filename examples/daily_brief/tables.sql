-- The tables of the brief. Times are text, YYYY-MM-DDTHH:MM:SS.ffffffZ, so they sort by time.

CREATE TABLE feeds (
  name TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 80),
  checked_at TEXT NOT NULL,
  answered_at TEXT,  -- when it last gave its articles
  error TEXT CHECK (length(error) <= 500)  -- NULL: it gave them the last time
);

CREATE TABLE raw_articles (
  id INTEGER PRIMARY KEY,
  url TEXT NOT NULL UNIQUE CHECK (length(url) BETWEEN 1 AND 2048),
  feed TEXT NOT NULL CHECK (length(feed) BETWEEN 1 AND 80),
  title TEXT NOT NULL CHECK (length(title) BETWEEN 1 AND 300),
  summary TEXT NOT NULL CHECK (length(summary) <= 1000),
  published_at TEXT NOT NULL,
  fetched_at TEXT NOT NULL
);
CREATE INDEX raw_articles_published ON raw_articles (published_at);
CREATE INDEX raw_articles_fetched ON raw_articles (fetched_at);

-- What retention_cleanup deleted; a feed that still lists it does not bring it back.
CREATE TABLE seen_urls (
  url TEXT PRIMARY KEY
) WITHOUT ROWID;
CREATE TRIGGER raw_articles_seen AFTER DELETE ON raw_articles
BEGIN INSERT OR IGNORE INTO seen_urls (url) VALUES (OLD.url); END;

-- A cluster is an event in the news; its key is the URL of its first article.
CREATE TABLE clusters (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE CHECK (length(key) BETWEEN 1 AND 2048),
  title TEXT NOT NULL,
  opened_at TEXT NOT NULL,
  article_count INTEGER NOT NULL DEFAULT 0 CHECK (article_count >= 0)
);
CREATE INDEX clusters_opened ON clusters (opened_at);

CREATE TABLE cluster_articles (
  cluster_id INTEGER NOT NULL REFERENCES clusters (id),
  raw_article_id INTEGER NOT NULL REFERENCES raw_articles (id),
  UNIQUE (cluster_id, raw_article_id)
);
CREATE INDEX cluster_articles_article ON cluster_articles (raw_article_id);

-- The tables below are immutable: triggers refuse changes of published rows.
CREATE TABLE briefs (
  day TEXT PRIMARY KEY CHECK (length(day) = 10),
  published_at TEXT NOT NULL
);

CREATE TABLE brief_items (
  day TEXT NOT NULL REFERENCES briefs (day),
  place INTEGER NOT NULL CHECK (place >= 1),
  cluster_id INTEGER NOT NULL REFERENCES clusters (id),
  raw_article_id INTEGER NOT NULL REFERENCES raw_articles (id),
  PRIMARY KEY (day, place, raw_article_id)
);
CREATE INDEX brief_items_article ON brief_items (raw_article_id);
CREATE INDEX brief_items_cluster ON brief_items (cluster_id);

CREATE TRIGGER briefs_fixed BEFORE UPDATE ON briefs
BEGIN SELECT RAISE(ABORT, 'a published brief is immutable'); END;
CREATE TRIGGER briefs_kept BEFORE DELETE ON briefs
BEGIN SELECT RAISE(ABORT, 'a published brief is immutable'); END;
CREATE TRIGGER brief_items_fixed BEFORE UPDATE ON brief_items
BEGIN SELECT RAISE(ABORT, 'a published brief is immutable'); END;
CREATE TRIGGER brief_items_kept BEFORE DELETE ON brief_items
BEGIN SELECT RAISE(ABORT, 'a published brief is immutable'); END;

PRAGMA user_version = 1;
