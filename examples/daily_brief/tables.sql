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

-- The job_runs table of S0: a copy of Outlast's records (ledger.py) for queries in SQL. Outlast's
-- own tables decide what runs; this one does not.
CREATE TABLE job_runs (
  id VARCHAR(36) NOT NULL PRIMARY KEY,
  job_name VARCHAR(128) NOT NULL CHECK (length(job_name) BETWEEN 1 AND 128),
  scheduled_for DATETIME NOT NULL,
  started_at DATETIME NOT NULL,
  finished_at DATETIME CHECK (finished_at >= started_at),
  status VARCHAR(15) NOT NULL
    CHECK (status IN ('running', 'success', 'failed', 'skipped_timeout')),
  worker_instance VARCHAR(128) CHECK (length(worker_instance) <= 128),
  error_message TEXT,
  job_id VARCHAR(36) NOT NULL,  -- where Outlast's own record is
  UNIQUE (job_name, scheduled_for),
  CHECK ((status = 'running') = (finished_at IS NULL))
);
CREATE INDEX job_runs_status ON job_runs (status);
CREATE INDEX job_runs_started ON job_runs (started_at);

CREATE TRIGGER job_runs_fixed BEFORE UPDATE ON job_runs WHEN OLD.status <> 'running'
BEGIN SELECT RAISE(ABORT, 'a closed run is immutable'); END;
CREATE TRIGGER job_runs_kept BEFORE DELETE ON job_runs
BEGIN SELECT RAISE(ABORT, 'the audit log keeps every run'); END;

PRAGMA user_version = 1;
