-- S0's job_runs: a view over Outlast's runs and the slots that SQL claimed. It is no copy: a run is in
-- it from its claim on. Outlast's times are microseconds since 1970.

-- Slots that an INSERT into job_runs claimed; Outlast does not run them, so they have no lease.
CREATE TABLE IF NOT EXISTS claimed_slots (
  id TEXT PRIMARY KEY,
  job_name TEXT NOT NULL CHECK (length(job_name) BETWEEN 1 AND 128),
  slot_at INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  finished_at INTEGER CHECK (finished_at >= started_at),
  status TEXT NOT NULL DEFAULT 'running'
    CHECK (status IN ('running', 'success', 'failed', 'skipped_timeout')),
  worker_instance TEXT CHECK (length(worker_instance) <= 128),
  error_message TEXT,
  UNIQUE (job_name, slot_at),
  CHECK ((status = 'running') = (finished_at IS NULL))
);
CREATE INDEX IF NOT EXISTS claimed_slots_status ON claimed_slots (status);
CREATE INDEX IF NOT EXISTS claimed_slots_started
  ON claimed_slots (strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000));

CREATE TRIGGER IF NOT EXISTS claimed_slots_fixed BEFORE UPDATE ON claimed_slots
WHEN OLD.status <> 'running'
BEGIN SELECT RAISE(ABORT, 'job_runs: a run that has ended is immutable'); END;

CREATE TRIGGER IF NOT EXISTS claimed_slots_kept BEFORE DELETE ON claimed_slots
BEGIN SELECT RAISE(ABORT, 'job_runs: the audit log keeps every run'); END;

-- The view's expressions, so that its two indexes are those of S0.
CREATE INDEX IF NOT EXISTS job_runs_status ON outlast_runs (
  CASE status
    WHEN 'succeeded' THEN 'success'
    WHEN 'skipped' THEN 'success'
    WHEN 'lost' THEN CASE
      WHEN reason IN ('timeout', 'lease_expired', 'silent') THEN 'skipped_timeout'
      ELSE 'failed'
    END
    ELSE 'failed'
  END
);
CREATE INDEX IF NOT EXISTS job_runs_started ON outlast_runs (
  strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000)
);

CREATE VIEW IF NOT EXISTS job_runs AS
SELECT
  r.run_id AS id,
  j.name AS job_name,
  strftime('%Y-%m-%dT%H:%M:%S', j.slot_at / 1000000, 'unixepoch') || printf('.%06dZ', j.slot_at % 1000000) AS scheduled_for,
  strftime('%Y-%m-%dT%H:%M:%S', r.started_at / 1000000, 'unixepoch') || printf('.%06dZ', r.started_at % 1000000) AS started_at,
  strftime('%Y-%m-%dT%H:%M:%S', r.finished_at / 1000000, 'unixepoch') || printf('.%06dZ', r.finished_at % 1000000) AS finished_at,
  CASE r.status
    WHEN 'succeeded' THEN 'success'
    WHEN 'skipped' THEN 'success'
    WHEN 'lost' THEN CASE
      WHEN r.reason IN ('timeout', 'lease_expired', 'silent') THEN 'skipped_timeout'
      ELSE 'failed'
    END
    ELSE 'failed'
  END AS status,
  nullif(w.instance_id, '?') AS worker_instance,
  CASE r.status
    WHEN 'failed' THEN r.error
    WHEN 'cancelled' THEN 'cancelled'
    WHEN 'lost' THEN CASE
      WHEN r.reason IN ('timeout', 'lease_expired', 'silent') THEN r.reason
      WHEN r.reason = 'shutdown' THEN 'worker_shutdown'
      ELSE 'worker_startup_recovery'
    END
  END AS error_message
FROM outlast_runs AS r
JOIN outlast_jobs AS j ON j.seq = r.job
JOIN outlast_workers AS w ON w.id = r.worker
WHERE j.delivery = 'once' AND j.slot_at IS NOT NULL
UNION ALL
SELECT
  o.run_id,
  j.name,
  strftime('%Y-%m-%dT%H:%M:%S', j.slot_at / 1000000, 'unixepoch') || printf('.%06dZ', j.slot_at % 1000000),
  strftime('%Y-%m-%dT%H:%M:%S', o.started_at / 1000000, 'unixepoch') || printf('.%06dZ', o.started_at % 1000000),
  NULL,
  'running',
  nullif(w.instance_id, '?'),
  NULL
FROM outlast_open_runs AS o
CROSS JOIN outlast_jobs AS j ON j.seq = o.job
CROSS JOIN outlast_workers AS w ON w.id = o.worker
WHERE j.delivery = 'once' AND j.slot_at IS NOT NULL
UNION ALL
SELECT
  c.id,
  c.job_name,
  strftime('%Y-%m-%dT%H:%M:%S', c.slot_at / 1000000, 'unixepoch') || printf('.%06dZ', c.slot_at % 1000000),
  strftime('%Y-%m-%dT%H:%M:%S', c.started_at / 1000000, 'unixepoch') || printf('.%06dZ', c.started_at % 1000000),
  strftime('%Y-%m-%dT%H:%M:%S', c.finished_at / 1000000, 'unixepoch') || printf('.%06dZ', c.finished_at % 1000000),
  c.status,
  c.worker_instance,
  c.error_message
FROM claimed_slots AS c;

-- S0's claim. A slot that has a job, or was claimed here, is refused in the words of a unique key;
-- one that was recorded as missed, coalesced or overlapped can still be claimed.
CREATE TRIGGER IF NOT EXISTS job_runs_claim INSTEAD OF INSERT ON job_runs
BEGIN
  SELECT RAISE(ABORT, 'job_runs: no schedule has this job_name; the names: outlast schedule list')
  WHERE NOT EXISTS (SELECT 1 FROM outlast_schedules WHERE name = NEW.job_name);
  SELECT RAISE(ABORT, 'job_runs: scheduled_for is no time; write it in UTC, as 2026-01-05 09:00:00')
  WHERE strftime('%s', NEW.scheduled_for) IS NULL OR typeof(NEW.scheduled_for) <> 'text';
  SELECT RAISE(ABORT, 'job_runs: started_at is no time; write it in UTC, as 2026-01-05 09:00:01')
  WHERE strftime('%s', NEW.started_at) IS NULL OR typeof(NEW.started_at) <> 'text';
  SELECT RAISE(ABORT, 'job_runs: a slot is claimed with status running, without id, finished_at and error_message')
  WHERE NEW.status IS NOT 'running' OR NEW.id IS NOT NULL OR NEW.finished_at IS NOT NULL
    OR NEW.error_message IS NOT NULL;
  SELECT RAISE(ABORT, 'job_runs: this store was moved or is being moved; see: outlast db status')
  WHERE EXISTS (SELECT 1 FROM outlast_transfer_status);
  SELECT RAISE(ABORT, 'UNIQUE constraint failed: job_runs.job_name, job_runs.scheduled_for')
  WHERE EXISTS (
    SELECT 1 FROM outlast_slots
    WHERE series = NEW.job_name AND job_id IS NOT NULL
      AND slot_at = CAST(strftime('%s', NEW.scheduled_for) AS INTEGER) * 1000000 + CAST(substr(strftime('%f', NEW.scheduled_for), 4) AS INTEGER) * 1000
  );
  INSERT INTO claimed_slots (id, job_name, slot_at, started_at, worker_instance)
  VALUES (
    lower(
      printf('%s-%s-4%s-8%s-%s', hex(randomblob(4)), hex(randomblob(2)),
        substr(hex(randomblob(2)), 2), substr(hex(randomblob(2)), 2), hex(randomblob(6)))
    ),
    NEW.job_name,
    CAST(strftime('%s', NEW.scheduled_for) AS INTEGER) * 1000000 + CAST(substr(strftime('%f', NEW.scheduled_for), 4) AS INTEGER) * 1000,
    CAST(strftime('%s', NEW.started_at) AS INTEGER) * 1000000 + CAST(substr(strftime('%f', NEW.started_at), 4) AS INTEGER) * 1000,
    NEW.worker_instance
  );
  UPDATE outlast_slots
  SET
    outcome = 'manual',
    actual = CAST(strftime('%s', NEW.started_at) AS INTEGER) * 1000000 + CAST(substr(strftime('%f', NEW.started_at), 4) AS INTEGER) * 1000,
    reason = 'claimed in job_runs',
    schedule_id = (SELECT id FROM outlast_schedules WHERE name = NEW.job_name),
    job_id = (
      SELECT id FROM claimed_slots
      WHERE job_name = NEW.job_name AND slot_at = outlast_slots.slot_at
    )
  WHERE series = NEW.job_name
    AND slot_at = CAST(strftime('%s', NEW.scheduled_for) AS INTEGER) * 1000000 + CAST(substr(strftime('%f', NEW.scheduled_for), 4) AS INTEGER) * 1000;
  INSERT INTO outlast_slots (
    series, slot_at, outcome, planned, actual, schedule_id, job_id, reason
  )
  SELECT
    c.job_name, c.slot_at, 'manual', c.slot_at, c.started_at, s.id, c.id, 'claimed in job_runs'
  FROM claimed_slots AS c
  JOIN outlast_schedules AS s ON s.name = c.job_name
  WHERE c.job_name = NEW.job_name
    AND c.slot_at = CAST(strftime('%s', NEW.scheduled_for) AS INTEGER) * 1000000 + CAST(substr(strftime('%f', NEW.scheduled_for), 4) AS INTEGER) * 1000
    AND NOT EXISTS (
      SELECT 1 FROM outlast_slots AS o WHERE o.series = c.job_name AND o.slot_at = c.slot_at
    );
END;

-- S0's ends. Only a row that SQL claimed is ended so; without finished_at it ends now.
CREATE TRIGGER IF NOT EXISTS job_runs_end INSTEAD OF UPDATE ON job_runs
BEGIN
  SELECT RAISE(ABORT, 'job_runs: a run that has ended is immutable')
  WHERE OLD.status <> 'running';
  SELECT RAISE(ABORT, 'job_runs: a worker of Outlast holds this run and ends it; to stop it: outlast cancel JOB')
  WHERE NOT EXISTS (SELECT 1 FROM claimed_slots WHERE id = OLD.id);
  SELECT RAISE(ABORT, 'job_runs: of a running row only status, finished_at and error_message change')
  WHERE NEW.id IS NOT OLD.id OR NEW.job_name IS NOT OLD.job_name
    OR NEW.scheduled_for IS NOT OLD.scheduled_for OR NEW.started_at IS NOT OLD.started_at
    OR NEW.worker_instance IS NOT OLD.worker_instance;
  SELECT RAISE(ABORT, 'job_runs: status is none of success, failed and skipped_timeout')
  WHERE NEW.status IS NULL OR NEW.status NOT IN ('success', 'failed', 'skipped_timeout');
  SELECT RAISE(ABORT, 'job_runs: finished_at is no time; write it in UTC, as 2026-01-05 09:00:02')
  WHERE strftime('%s', coalesce(NEW.finished_at, 'now')) IS NULL;
  SELECT RAISE(ABORT, 'job_runs: finished_at is before started_at')
  WHERE CAST(strftime('%s', coalesce(NEW.finished_at, 'now')) AS INTEGER) * 1000000 + CAST(substr(strftime('%f', coalesce(NEW.finished_at, 'now')), 4) AS INTEGER) * 1000
    < (SELECT started_at FROM claimed_slots WHERE id = OLD.id);
  UPDATE claimed_slots
  SET
    status = NEW.status,
    finished_at = CAST(strftime('%s', coalesce(NEW.finished_at, 'now')) AS INTEGER) * 1000000 + CAST(substr(strftime('%f', coalesce(NEW.finished_at, 'now')), 4) AS INTEGER) * 1000,
    error_message = NEW.error_message
  WHERE id = OLD.id;
END;

CREATE TRIGGER IF NOT EXISTS job_runs_kept INSTEAD OF DELETE ON job_runs
BEGIN SELECT RAISE(ABORT, 'job_runs: the audit log keeps every run'); END;
