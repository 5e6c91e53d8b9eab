-- S1's tables as views over Outlast's, in a schema of their own: SET search_path = studio.
-- Outlast stores times as microseconds since 1970.

CREATE SCHEMA IF NOT EXISTS studio;

CREATE OR REPLACE FUNCTION studio.moment(micros bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN timestamptz 'epoch' + micros * interval '1 microsecond';

CREATE OR REPLACE VIEW studio.jobs AS
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
  studio.moment(s.created_at) AS created_at,
  studio.moment(s.created_at) AS queued_at,
  studio.moment(s.started_at) AS started_at,
  studio.moment(s.finished_at) AS finished_at,
  s.holder AS worker_id,
  s.state = 'dead_letter' AS permanently_failed
FROM outlast.job_state AS s
WHERE s.delivery = 'linked'
  -- A direct job is not part of the queue: it is shown once it is dispatched.
  AND NOT (
    s.state IN ('blocked', 'scheduled', 'queued')
    AND EXISTS (
      SELECT 1 FROM outlast.reservations AS r WHERE r.job = s.id AND r.status = 'active'
    )
  );

CREATE OR REPLACE VIEW studio.job_runs AS
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
  studio.moment(r.started_at) AS started_at,
  studio.moment(r.finished_at) AS finished_at,
  r.exit_code,
  CASE r.status WHEN 'lost' THEN 'Scheduler crash recovery' ELSE r.error END AS error,
  coalesce(r.artifacts, '[]') AS artifacts,
  r.log_path
FROM (
  SELECT
    job, run_id, status, started_at, finished_at, exit_code, error, artifacts, log_path
  FROM outlast.runs
  UNION ALL
  SELECT job, run_id, 'running', started_at, NULL, NULL, NULL, artifacts, NULL
  FROM outlast.open_runs
) AS r
JOIN outlast.jobs AS j ON j.id = r.job
WHERE j.delivery = 'linked';

CREATE OR REPLACE VIEW studio.job_templates AS
SELECT
  (d.value ->> 'id')::uuid AS template_id,
  d.key AS name,
  d.value ->> 'type' AS job_type,
  d.value -> 'params' AS params,
  (d.value ->> 'priority')::integer AS priority,
  (d.value ->> 'max_attempts')::integer - 1 AS max_retries,
  studio.moment(d.created_at) AS created_at,
  studio.moment(d.updated_at) AS updated_at
FROM outlast.documents AS d
WHERE d.kind = 'template';

CREATE OR REPLACE VIEW studio.schedules AS
SELECT
  s.id AS schedule_id,
  t.template_id,
  coalesce(s.plan ->> 'label', s.name) AS name,
  s.plan #>> '{rule,cron}' AS cron_expression,
  s.plan #>> '{rule,timezone}' AS timezone,
  s.enabled,
  nullif(s.plan ->> 'params', '{}')::json AS param_overrides,
  studio.moment(s.last_triggered_at) AS last_triggered_at,
  studio.moment(s.next_trigger_at) AS next_trigger_at,
  studio.moment(s.created_at) AS created_at
FROM outlast.schedules AS s
LEFT JOIN studio.job_templates AS t ON t.name = s.plan ->> 'template';

CREATE OR REPLACE VIEW studio.direct_reservations AS
SELECT
  r.id AS reservation_id,
  studio.moment(r.reserved_at) AS reserved_at,
  r.caller || ' for ' || r.request AS reserved_by,
  upper(r.status) AS status,
  studio.moment(r.expires_at) AS expires_at
FROM outlast.reservations AS r;

-- A job has one claim path, and each record one writer: the views are for reading. What S1 writes
-- there, a command does.

CREATE OR REPLACE FUNCTION studio.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%', TG_ARGV[0];
END;
$$;

CREATE OR REPLACE TRIGGER jobs_insert INSTEAD OF INSERT ON studio.jobs FOR EACH ROW
EXECUTE FUNCTION studio.refuse('jobs is a view; add a job with: outlast enqueue story title=…');

CREATE OR REPLACE TRIGGER jobs_update INSTEAD OF UPDATE ON studio.jobs FOR EACH ROW
EXECUTE FUNCTION studio.refuse('jobs is a view; a worker alone claims jobs: outlast worker story_studio.studio:app; to change a waiting job: outlast move, outlast edit, outlast cancel');

CREATE OR REPLACE TRIGGER jobs_delete INSTEAD OF DELETE ON studio.jobs FOR EACH ROW
EXECUTE FUNCTION studio.refuse('jobs is a view; cancel a job with: outlast cancel JOB');

CREATE OR REPLACE TRIGGER job_runs_insert INSTEAD OF INSERT ON studio.job_runs FOR EACH ROW
EXECUTE FUNCTION studio.refuse('job_runs is a view; the claim of a job opens its run: outlast worker story_studio.studio:app');

CREATE OR REPLACE TRIGGER job_runs_update INSTEAD OF UPDATE ON studio.job_runs FOR EACH ROW
EXECUTE FUNCTION studio.refuse('job_runs is a view; the worker that claimed a job ends its run');

CREATE OR REPLACE TRIGGER job_runs_delete INSTEAD OF DELETE ON studio.job_runs FOR EACH ROW
EXECUTE FUNCTION studio.refuse('job_runs is a view; runs are deleted with their job: outlast db prune');

CREATE OR REPLACE TRIGGER job_templates_insert INSTEAD OF INSERT ON studio.job_templates FOR EACH ROW
EXECUTE FUNCTION studio.refuse('job_templates is a view; use: outlast template save NAME TYPE');

CREATE OR REPLACE TRIGGER job_templates_update INSTEAD OF UPDATE ON studio.job_templates FOR EACH ROW
EXECUTE FUNCTION studio.refuse('job_templates is a view; use: outlast template save NAME TYPE');

CREATE OR REPLACE TRIGGER job_templates_delete INSTEAD OF DELETE ON studio.job_templates FOR EACH ROW
EXECUTE FUNCTION studio.refuse('job_templates is a view; use: outlast template remove NAME');

CREATE OR REPLACE TRIGGER schedules_insert INSTEAD OF INSERT ON studio.schedules FOR EACH ROW
EXECUTE FUNCTION studio.refuse('schedules is a view; use: outlast schedule save NAME CRON --template ID');

CREATE OR REPLACE TRIGGER schedules_update INSTEAD OF UPDATE ON studio.schedules FOR EACH ROW
EXECUTE FUNCTION studio.refuse('schedules is a view; use: outlast schedule edit NAME');

CREATE OR REPLACE TRIGGER schedules_delete INSTEAD OF DELETE ON studio.schedules FOR EACH ROW
EXECUTE FUNCTION studio.refuse('schedules is a view; use: outlast schedule remove NAME');

CREATE OR REPLACE TRIGGER direct_reservations_insert INSTEAD OF INSERT ON studio.direct_reservations FOR EACH ROW
EXECUTE FUNCTION studio.refuse('direct_reservations is a view; a direct run reserves the queue: run_now of a job type');

CREATE OR REPLACE TRIGGER direct_reservations_update INSTEAD OF UPDATE ON studio.direct_reservations FOR EACH ROW
EXECUTE FUNCTION studio.refuse('direct_reservations is a view; cancel the direct job: outlast cancel JOB');

CREATE OR REPLACE TRIGGER direct_reservations_delete INSTEAD OF DELETE ON studio.direct_reservations FOR EACH ROW
EXECUTE FUNCTION studio.refuse('direct_reservations is a view; reservations are kept');
