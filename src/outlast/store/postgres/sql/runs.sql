-- CASE hides the fence (the open run must have exactly this token) from the planner, and runs are
-- read by id: a plan made while nothing ran would join them by a scan.

-- @renew
-- Renewing the lease of a direct job extends its reservation.
WITH clock AS MATERIALIZED (
  SELECT
    coalesce(:now::bigint, outlast.micros()) AS now,
    coalesce(:mono::bigint, outlast.micros()) AS mono
),
renewed AS (
  UPDATE outlast.open_runs AS o
  SET lease_until = k.mono + :span::bigint
  FROM clock AS k
  WHERE o.job = ANY(:jobs::uuid[])
    AND CASE
      WHEN (o.job, o.token) IN (
        SELECT l.job, l.token FROM unnest(:jobs::uuid[], :tokens::integer[]) AS l (job, token)
      ) THEN true
      ELSE false
    END
  RETURNING o.job, o.token, o.cancel
),
kept AS (
  UPDATE outlast.reservations AS r
  SET until = k.mono + r.span, expires_at = k.now + r.span
  FROM clock AS k
  WHERE r.status = 'active' AND r.job IN (SELECT n.job FROM renewed AS n)
)
SELECT job, token, cancel FROM renewed;

-- @record_progress
UPDATE outlast.open_runs AS o
SET progress = (
  SELECT l.progress::json
  FROM unnest(:jobs::uuid[], :tokens::integer[], :texts::text[]) AS l (job, token, progress)
  WHERE l.job = o.job AND l.token = o.token
)
WHERE o.job = ANY(:jobs::uuid[])
  AND CASE
    WHEN (o.job, o.token) IN (
      SELECT l.job, l.token FROM unnest(:jobs::uuid[], :tokens::integer[]) AS l (job, token)
    ) THEN true
    ELSE false
  END
RETURNING o.job, o.token;

-- @attach_open
-- Appended as text: the existing JSON is not rewritten.
UPDATE outlast.open_runs
SET artifacts = CASE
  WHEN artifacts IS NULL THEN :artifacts::text::json
  ELSE (left(artifacts::text, -1) || ',' || substr(:artifacts::text, 2))::json
END
WHERE job = :job::uuid AND token = :token::integer;

-- @attach_closed
-- Only to the latest run of the job: an earlier holder is refused.
UPDATE outlast.runs
SET artifacts = CASE
  WHEN artifacts IS NULL THEN :artifacts::text::json
  ELSE (left(artifacts::text, -1) || ',' || substr(:artifacts::text, 2))::json
END
WHERE job = :job::uuid
  AND token = :token::integer
  AND token = (SELECT s.token FROM outlast.job_state AS s WHERE s.id = :job::uuid);

-- @is_attachable
SELECT 1
FROM outlast.job_state
WHERE id = :job::uuid AND token = :token::integer AND token > 0;

-- @of_job
SELECT
  r.run_id, j.id, r.token, r.status, r.reason, k.instance_id, k.boot_id, r.started_at,
  r.finished_at, r.error, r.result::text, r.exit_code, r.log_path,
  coalesce(r.artifacts, '[]')::text, j.params::text, j.template_id, j.template_at,
  r.progress::text
FROM outlast.jobs AS j
JOIN outlast.runs AS r ON r.job = j.id
CROSS JOIN LATERAL (SELECT * FROM outlast.workers AS h WHERE h.id = r.worker OFFSET 0) AS k
WHERE j.id = :id::uuid
UNION ALL
SELECT
  o.run_id, j.id, o.token, 'running', NULL, k.instance_id, k.boot_id, o.started_at,
  NULL, NULL, NULL, NULL, NULL,
  coalesce(o.artifacts, '[]')::text, j.params::text, j.template_id, j.template_at,
  o.progress::text
FROM outlast.jobs AS j
JOIN outlast.open_runs AS o ON o.job = j.id
CROSS JOIN LATERAL (SELECT * FROM outlast.workers AS h WHERE h.id = o.worker OFFSET 0) AS k
WHERE j.id = :id::uuid
ORDER BY 3;

-- @events
SELECT e.id, e.at, e.job, e.run_id, e.kind, e.token, e.reason, e.detail, e.queue
FROM outlast.events AS e
WHERE e.job = :id::uuid
ORDER BY e.id;

-- @refusals
-- The event of the last ended run, if that was a refusal; before the first run of a linked job the
-- event that ended its predecessor.
SELECT j.id, e.at, e.detail
FROM outlast.jobs AS j
CROSS JOIN LATERAL (
  SELECT coalesce(
    (SELECT w.token FROM outlast.waiting AS w WHERE w.job = j.id),
    (SELECT o.token - 1 FROM outlast.open_runs AS o WHERE o.job = j.id),
    (SELECT d.token FROM outlast.ends AS d WHERE d.job = j.id)
  ) AS token
  OFFSET 0
) AS last
CROSS JOIN LATERAL (
  SELECT f.at, f.detail
  FROM outlast.events AS f
  WHERE f.job = CASE WHEN last.token = 0 THEN j.retry_of ELSE j.id END
    AND f.reason = 'unfit_params'
    AND CASE
      WHEN last.token = 0 THEN f.kind = 'chained' ELSE f.kind = 'unfit' AND f.token = last.token
    END
  ORDER BY f.id DESC
  LIMIT 1
) AS e
WHERE j.id = ANY (:ids::uuid[]);

-- @events_of_no_job
-- Ordered by job as well: otherwise the plan is a scan of all events by id.
SELECT e.id, e.at, e.job, e.run_id, e.kind, e.token, e.reason, e.detail, e.queue
FROM (
  SELECT * FROM outlast.events WHERE job IS NULL ORDER BY job DESC, id DESC LIMIT :limit::bigint
) AS e
ORDER BY e.id;

-- @stream
-- Only events below the oldest open transaction, to which none can be added: see the ids of events.
SELECT e.id, e.at, e.job, e.run_id, e.kind, e.token, e.reason, e.detail, e.queue
FROM outlast.events AS e
WHERE e.id > :after::bigint
  AND e.id < (
    (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + outlast.event_epoch()) << 24
  )
ORDER BY e.id
LIMIT :limit::bigint;
