-- S1's tables as views over Outlast's, in the same file. Outlast stores times as microseconds.

CREATE VIEW IF NOT EXISTS jobs AS
SELECT
  s.id AS job_id,
  s.template_id,
  s.schedule_id,
  s.group_id,
  s.type AS job_type,
  s.params,
  CASE
    WHEN s.state IN ('new', 'blocked', 'scheduled', 'queued') THEN 'QUEUED'
    WHEN s.state = 'cancelled' OR (s.state = 'skipped' AND s.token = 0) THEN 'CANCELLED'
    ELSE 'RUNNING'  -- was dispatched; finished_at says whether it has ended
  END AS status,
  s.priority,
  s.position,
  s.retry_of,
  strftime('%Y-%m-%dT%H:%M:%S', s.created_at / 1000000, 'unixepoch')
    || printf('.%06dZ', s.created_at % 1000000) AS created_at,
  strftime('%Y-%m-%dT%H:%M:%S', s.created_at / 1000000, 'unixepoch')
    || printf('.%06dZ', s.created_at % 1000000) AS queued_at,
  strftime('%Y-%m-%dT%H:%M:%S', s.started_at / 1000000, 'unixepoch')
    || printf('.%06dZ', s.started_at % 1000000) AS started_at,
  strftime('%Y-%m-%dT%H:%M:%S', s.finished_at / 1000000, 'unixepoch')
    || printf('.%06dZ', s.finished_at % 1000000) AS finished_at,
  s.holder AS worker_id,
  s.state = 'dead_letter' AS permanently_failed
FROM outlast_job_state AS s
WHERE s.delivery = 'linked'
  -- A direct job is not part of the queue: it is shown once it is dispatched.
  AND NOT (
    s.state IN ('blocked', 'scheduled', 'queued')
    AND EXISTS (
      SELECT 1 FROM outlast_reservations AS r WHERE r.job_id = s.id AND r.status = 'active'
    )
  );

CREATE VIEW IF NOT EXISTS job_runs AS
SELECT
  r.run_id,
  j.id AS job_id,
  j.template_id,
  j.params AS params_snapshot,
  CASE r.status
    WHEN 'succeeded' THEN 'COMPLETED'
    WHEN 'failed' THEN 'FAILED'
    WHEN 'lost' THEN 'FAILED'
    WHEN 'skipped' THEN 'SKIPPED'
    WHEN 'cancelled' THEN 'SKIPPED'
  END AS status,  -- NULL: S1's "pending"
  strftime('%Y-%m-%dT%H:%M:%S', r.started_at / 1000000, 'unixepoch')
    || printf('.%06dZ', r.started_at % 1000000) AS started_at,
  strftime('%Y-%m-%dT%H:%M:%S', r.finished_at / 1000000, 'unixepoch')
    || printf('.%06dZ', r.finished_at % 1000000) AS finished_at,
  r.exit_code,
  CASE r.status WHEN 'lost' THEN 'Scheduler crash recovery' ELSE r.error END AS error,
  r.artifacts,
  r.log_path
FROM (
  SELECT
    job, run_id, status, started_at, finished_at, exit_code, error, artifacts, log_path
  FROM outlast_runs
  UNION ALL
  SELECT job, run_id, 'running', started_at, NULL, NULL, NULL, artifacts, NULL
  FROM outlast_open_runs
) AS r
JOIN outlast_jobs AS j ON j.seq = r.job
WHERE j.delivery = 'linked';

CREATE VIEW IF NOT EXISTS job_templates AS
SELECT
  d.value ->> '$.id' AS template_id,
  d.key AS name,
  d.value ->> '$.type' AS job_type,
  d.value -> '$.params' AS params,
  d.value ->> '$.priority' AS priority,
  (d.value ->> '$.max_attempts') - 1 AS max_retries,
  strftime('%Y-%m-%dT%H:%M:%S', d.created_at / 1000000, 'unixepoch')
    || printf('.%06dZ', d.created_at % 1000000) AS created_at,
  strftime('%Y-%m-%dT%H:%M:%S', d.updated_at / 1000000, 'unixepoch')
    || printf('.%06dZ', d.updated_at % 1000000) AS updated_at
FROM outlast_documents AS d
WHERE d.kind = 'template';

CREATE VIEW IF NOT EXISTS schedules AS
SELECT
  s.id AS schedule_id,
  t.template_id,
  coalesce(s.plan ->> '$.label', s.name) AS name,
  s.plan ->> '$.rule.cron' AS cron_expression,
  s.plan ->> '$.rule.timezone' AS timezone,
  s.enabled,
  nullif(s.plan -> '$.params', '{}') AS param_overrides,
  strftime('%Y-%m-%dT%H:%M:%S', s.last_triggered_at / 1000000, 'unixepoch')
    || printf('.%06dZ', s.last_triggered_at % 1000000) AS last_triggered_at,
  strftime('%Y-%m-%dT%H:%M:%S', s.next_trigger_at / 1000000, 'unixepoch')
    || printf('.%06dZ', s.next_trigger_at % 1000000) AS next_trigger_at,
  strftime('%Y-%m-%dT%H:%M:%S', s.created_at / 1000000, 'unixepoch')
    || printf('.%06dZ', s.created_at % 1000000) AS created_at
FROM outlast_schedules AS s
LEFT JOIN job_templates AS t ON t.name = s.plan ->> '$.template';

CREATE VIEW IF NOT EXISTS direct_reservations AS
SELECT
  r.id AS reservation_id,
  strftime('%Y-%m-%dT%H:%M:%S', r.reserved_at / 1000000, 'unixepoch')
    || printf('.%06dZ', r.reserved_at % 1000000) AS reserved_at,
  r.caller || ' for ' || r.request AS reserved_by,
  upper(r.status) AS status,
  strftime('%Y-%m-%dT%H:%M:%S', r.expires_at / 1000000, 'unixepoch')
    || printf('.%06dZ', r.expires_at % 1000000) AS expires_at
FROM outlast_reservations AS r;

-- A job has one claim path, and each record one writer: the views are for reading. What S1 writes
-- there, a command does.

CREATE TRIGGER IF NOT EXISTS jobs_insert INSTEAD OF INSERT ON jobs
BEGIN SELECT RAISE(ABORT, 'jobs is a view; add a job with: outlast enqueue story title=…'); END;

CREATE TRIGGER IF NOT EXISTS jobs_update INSTEAD OF UPDATE ON jobs
BEGIN SELECT RAISE(ABORT, 'jobs is a view; a worker alone claims jobs: outlast worker story_studio.studio:app; to change a waiting job: outlast move, outlast edit, outlast cancel'); END;

CREATE TRIGGER IF NOT EXISTS jobs_delete INSTEAD OF DELETE ON jobs
BEGIN SELECT RAISE(ABORT, 'jobs is a view; cancel a job with: outlast cancel JOB'); END;

CREATE TRIGGER IF NOT EXISTS job_runs_insert INSTEAD OF INSERT ON job_runs
BEGIN SELECT RAISE(ABORT, 'job_runs is a view; the claim of a job opens its run: outlast worker story_studio.studio:app'); END;

CREATE TRIGGER IF NOT EXISTS job_runs_update INSTEAD OF UPDATE ON job_runs
BEGIN SELECT RAISE(ABORT, 'job_runs is a view; the worker that claimed a job ends its run'); END;

CREATE TRIGGER IF NOT EXISTS job_runs_delete INSTEAD OF DELETE ON job_runs
BEGIN SELECT RAISE(ABORT, 'job_runs is a view; runs are deleted with their job: outlast db prune'); END;

CREATE TRIGGER IF NOT EXISTS job_templates_insert INSTEAD OF INSERT ON job_templates
BEGIN SELECT RAISE(ABORT, 'job_templates is a view; use: outlast template save NAME TYPE'); END;

CREATE TRIGGER IF NOT EXISTS job_templates_update INSTEAD OF UPDATE ON job_templates
BEGIN SELECT RAISE(ABORT, 'job_templates is a view; use: outlast template save NAME TYPE'); END;

CREATE TRIGGER IF NOT EXISTS job_templates_delete INSTEAD OF DELETE ON job_templates
BEGIN SELECT RAISE(ABORT, 'job_templates is a view; use: outlast template remove NAME'); END;

CREATE TRIGGER IF NOT EXISTS schedules_insert INSTEAD OF INSERT ON schedules
BEGIN SELECT RAISE(ABORT, 'schedules is a view; use: outlast schedule save NAME CRON --template ID'); END;

CREATE TRIGGER IF NOT EXISTS schedules_update INSTEAD OF UPDATE ON schedules
BEGIN SELECT RAISE(ABORT, 'schedules is a view; use: outlast schedule edit NAME'); END;

CREATE TRIGGER IF NOT EXISTS schedules_delete INSTEAD OF DELETE ON schedules
BEGIN SELECT RAISE(ABORT, 'schedules is a view; use: outlast schedule remove NAME'); END;

CREATE TRIGGER IF NOT EXISTS direct_reservations_insert INSTEAD OF INSERT ON direct_reservations
BEGIN SELECT RAISE(ABORT, 'direct_reservations is a view; a direct run reserves the queue: run_now of a job type'); END;

CREATE TRIGGER IF NOT EXISTS direct_reservations_update INSTEAD OF UPDATE ON direct_reservations
BEGIN SELECT RAISE(ABORT, 'direct_reservations is a view; cancel the direct job: outlast cancel JOB'); END;

CREATE TRIGGER IF NOT EXISTS direct_reservations_delete INSTEAD OF DELETE ON direct_reservations
BEGIN SELECT RAISE(ABORT, 'direct_reservations is a view; reservations are kept'); END;
