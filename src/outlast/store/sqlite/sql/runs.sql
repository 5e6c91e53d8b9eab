-- @all
SELECT
  r.run_id, j.id, r.token, r.status, r.reason, k.instance_id, k.boot_id, r.started_at,
  r.finished_at, r.error, r.result, r.exit_code, r.log_path, r.artifacts, j.params, j.template_id,
  j.template_at,
  r.progress
FROM outlast_jobs AS j
CROSS JOIN outlast_runs AS r ON r.job = j.seq
CROSS JOIN outlast_workers AS k ON k.id = r.worker
WHERE j.id = :id
UNION ALL
SELECT
  o.run_id, j.id, o.token, 'running', NULL, k.instance_id, k.boot_id, o.started_at,
  NULL, NULL, NULL, NULL, NULL, o.artifacts, j.params, j.template_id,
  j.template_at,
  o.progress
FROM outlast_jobs AS j
CROSS JOIN outlast_open_runs AS o ON o.job = j.seq
CROSS JOIN outlast_workers AS k ON k.id = o.worker
WHERE j.id = :id
ORDER BY 3;

-- @events
SELECT e.id, e.at, j.id, e.run_id, e.kind, e.token, e.reason, e.detail, e.queue
FROM outlast_jobs AS j
CROSS JOIN outlast_events AS e ON e.job = j.seq
WHERE j.id = :id
ORDER BY e.id;

-- @refusals
-- The event of the last ended run, if that was a refusal; before the first run of a linked job the
-- event that ended its predecessor.
SELECT l.key, e.at, e.detail
FROM json_each(:ids) AS l
CROSS JOIN outlast_jobs AS j ON j.id = l.value
LEFT JOIN outlast_waiting AS w ON w.job = j.seq
LEFT JOIN outlast_open_runs AS o ON o.job = j.seq
LEFT JOIN outlast_ends AS d ON d.job = j.seq
CROSS JOIN outlast_events AS e
  ON e.job = CASE WHEN coalesce(w.token, o.token - 1, d.token) = 0 THEN j.retry_of ELSE j.seq END
WHERE e.reason = 'unfit_params'
  AND CASE coalesce(w.token, o.token - 1, d.token)
    WHEN 0 THEN e.kind = 'chained'
    ELSE e.kind = 'unfit' AND e.token = coalesce(w.token, o.token - 1, d.token)
  END;

-- @events_of_no_job
SELECT e.id, e.at, NULL, e.run_id, e.kind, e.token, e.reason, e.detail, e.queue
FROM (
  SELECT * FROM outlast_events WHERE job IS NULL ORDER BY id DESC LIMIT :limit
) AS e
ORDER BY e.id;

-- @event_stream
-- Ids are assigned under the write lock, so events become visible in id order.
SELECT e.id, e.at, j.id, e.run_id, e.kind, e.token, e.reason, e.detail, e.queue
FROM outlast_events AS e
LEFT JOIN outlast_jobs AS j ON j.seq = e.job
WHERE e.id > :after
ORDER BY e.id
LIMIT :limit;

-- @renew
UPDATE outlast_open_runs
SET lease_until = :until
WHERE job IN (
  SELECT o.job
  FROM json_each(:leases) AS l
  CROSS JOIN outlast_jobs AS j ON j.id = l.value ->> 0
  CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = l.value ->> 1
);

-- @renewed
SELECT json_group_array(json_array(l.key, o.cancel))
FROM json_each(:leases) AS l
CROSS JOIN outlast_jobs AS j ON j.id = l.value ->> 0
CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = l.value ->> 1;

-- @record_progress
-- The LIMIT keeps the planner from scanning all open runs.
UPDATE outlast_open_runs
SET progress = r.progress
FROM (
  SELECT o.job, l.value ->> 2 AS progress
  FROM json_each(:reports) AS l
  CROSS JOIN outlast_jobs AS j ON j.id = l.value ->> 0
  CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = l.value ->> 1
  WHERE json_valid(l.value ->> 2)
  LIMIT -1
) AS r
WHERE outlast_open_runs.job = r.job;

-- @progress_accepted
SELECT json_group_array(l.key)
FROM json_each(:reports) AS l
CROSS JOIN outlast_jobs AS j ON j.id = l.value ->> 0
CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = l.value ->> 1
WHERE json_valid(l.value ->> 2);

-- @attach_open
UPDATE outlast_open_runs
SET artifacts = (
  SELECT json_group_array(value)
  FROM (SELECT value FROM json_each(artifacts) UNION ALL SELECT value FROM json_each(:artifacts))
)
WHERE job = (SELECT seq FROM outlast_jobs WHERE id = :id) AND token = :token;

-- @attach_closed
-- Only the job's latest run: a former holder may not write.
UPDATE outlast_runs
SET artifacts = (
  SELECT json_group_array(value)
  FROM (SELECT value FROM json_each(artifacts) UNION ALL SELECT value FROM json_each(:artifacts))
)
WHERE job = (SELECT seq FROM outlast_jobs WHERE id = :id)
  AND token = :token
  AND token = (SELECT s.token FROM outlast_job_state AS s WHERE s.id = :id);
