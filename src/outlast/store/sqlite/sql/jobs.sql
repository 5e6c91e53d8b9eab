-- @get
SELECT s.* FROM json_each(:ids) AS i CROSS JOIN outlast_job_state AS s ON s.id = i.value;

-- @lapsed
SELECT s.*
FROM (
  SELECT job, lease_until FROM outlast_open_runs
  WHERE lease_until <= :mono
  ORDER BY lease_until, job
  LIMIT :limit
) AS o
CROSS JOIN outlast_job_state AS s ON s.seq = o.job
ORDER BY o.lease_until, o.job;

-- @chores
-- Each part ends at the first row it finds, and has an index of little else.
SELECT
  EXISTS (SELECT 1 FROM outlast_open_runs WHERE lease_until <= :mono),
  EXISTS (
    SELECT 1 FROM outlast_waiting
    WHERE start_deadline IS NOT NULL AND start_deadline < :now AND state = 'queued'
  ),
  EXISTS (
    SELECT 1 FROM outlast_reservations INDEXED BY outlast_reservations_active
    WHERE status = 'active'
  ),
  EXISTS (
    SELECT 1 FROM outlast_groups INDEXED BY outlast_groups_closing
    WHERE closing IS NOT NULL AND NOT swept
  )
  OR EXISTS (
    SELECT 1 FROM outlast_groups INDEXED BY outlast_groups_unsealed
    WHERE sealed_at IS NULL AND closing IS NULL AND created_at < :before
  );

-- @trees
-- Workers that hold runs, of those whose boot is a lock.
SELECT DISTINCT k.boot_id
FROM outlast_open_runs AS o
CROSS JOIN outlast_workers AS k ON k.id = o.worker
WHERE k.boot_id GLOB :tree;

-- @overdue
SELECT s.*
FROM (
  SELECT job, start_deadline FROM outlast_waiting
  WHERE start_deadline IS NOT NULL AND start_deadline < :now AND state = 'queued'
  ORDER BY start_deadline, job
  LIMIT :limit
) AS w
CROSS JOIN outlast_job_state AS s ON s.seq = w.job
ORDER BY w.start_deadline, w.job;

-- @peek
-- The order index is by type, so: which types wait, then the first few of each, sorted together
-- with what the next claim would promote before it looks.
WITH RECURSIVE types (type) AS (
  SELECT min(type) FROM outlast_waiting WHERE queue = :queue AND state = 'queued'
  UNION ALL
  SELECT (
    SELECT min(w.type) FROM outlast_waiting AS w
    WHERE w.queue = :queue AND w.state = 'queued' AND w.type > types.type
  )
  FROM types
  WHERE types.type IS NOT NULL
)
SELECT s.*
FROM (
  SELECT w.job, w.priority, w.position, w.available_at, w.created_at
  FROM (
    SELECT q.job
    FROM types AS t
    CROSS JOIN outlast_waiting AS q ON q.job IN (
      SELECT i.job FROM outlast_waiting AS i
      WHERE i.queue = :queue AND i.type = t.type AND i.state = 'queued'
      ORDER BY i.priority DESC, i.position, i.available_at, i.created_at, i.job
      LIMIT :limit
    )
    UNION ALL
    SELECT d.job
    FROM (
      SELECT p.job, p.queue FROM outlast_waiting AS p
      WHERE p.state IN ('scheduled', 'retry_wait') AND p.available_at <= :now
      ORDER BY p.available_at, p.job
      LIMIT :promoted
    ) AS d
    WHERE d.queue = :queue
  ) AS n
  CROSS JOIN outlast_waiting AS w ON w.job = n.job
  ORDER BY w.priority DESC, w.position, w.available_at, w.created_at, w.job
  LIMIT :limit
) AS w
CROSS JOIN outlast_job_state AS s ON s.seq = w.job
ORDER BY w.priority DESC, w.position, w.available_at, w.created_at, w.job;

-- @find
SELECT s.*
FROM outlast_job_state AS s
WHERE (:before IS NULL OR s.seq < :before)
  AND (:queue IS NULL OR s.queue = :queue)
  AND (:type IS NULL OR s.type = :type)
  AND (:states IS NULL OR s.state IN (SELECT value FROM json_each(:states)))
ORDER BY s.seq DESC
LIMIT :limit;

-- @find_live
-- By where a job stands, so that the cost is that of the few, not of all that were ever stored.
SELECT s.*
FROM (
  SELECT * FROM (
    SELECT w.job FROM outlast_waiting AS w
    WHERE w.state IN (SELECT value FROM json_each(:states))
      AND (:before IS NULL OR w.job < :before)
      AND (:queue IS NULL OR w.queue = :queue)
      AND (:type IS NULL OR w.type = :type)
    ORDER BY w.job DESC
    LIMIT :limit
  )
  UNION ALL
  SELECT * FROM (
    SELECT o.job FROM outlast_open_runs AS o
    CROSS JOIN outlast_jobs AS j ON j.seq = o.job
    WHERE 'running' IN (SELECT value FROM json_each(:states))
      AND (:before IS NULL OR o.job < :before)
      AND (:queue IS NULL OR o.queue = :queue)
      AND (:type IS NULL OR j.type = :type)
    ORDER BY o.job DESC
    LIMIT :limit
  )
  UNION ALL
  SELECT e.job
  FROM json_each(:states) AS t
  CROSS JOIN outlast_ends AS e ON e.job IN (
    SELECT i.job FROM outlast_ends AS i INDEXED BY outlast_ends_odd
    CROSS JOIN outlast_jobs AS j ON j.seq = i.job
    WHERE i.state = t.value AND i.state <> 'succeeded'
      AND (:before IS NULL OR i.job < :before)
      AND (:queue IS NULL OR i.queue = :queue)
      AND (:type IS NULL OR j.type = :type)
    ORDER BY i.job DESC
    LIMIT :limit
  )
  ORDER BY 1 DESC
  LIMIT :limit
) AS found
CROSS JOIN outlast_job_state AS s ON s.seq = found.job
ORDER BY s.seq DESC;

-- @find_id
-- An id is written with characters that all come before `~`.
SELECT s.*
FROM (
  SELECT seq FROM outlast_jobs
  WHERE id >= :prefix AND id < :prefix || '~' AND (:before IS NULL OR seq < :before)
) AS j
CROSS JOIN outlast_job_state AS s ON s.seq = j.seq
ORDER BY s.seq DESC;

-- @find_key
SELECT s.*
FROM outlast_keys AS k
CROSS JOIN outlast_jobs AS r ON r.id = k.job_id
CROSS JOIN outlast_job_state AS s ON s.seq IN (
  SELECT seq FROM outlast_jobs WHERE root = r.seq
  UNION ALL
  SELECT r.seq
)
WHERE k.scope IN ('key', 'active') AND k.key = :key AND (:before IS NULL OR s.seq < :before)
ORDER BY s.seq DESC;

-- @counts
SELECT queue, state, count(*) FROM outlast_waiting GROUP BY queue, state
UNION ALL
SELECT queue, 'running', count(*) FROM outlast_open_runs GROUP BY queue
UNION ALL
SELECT queue, state, count(*) FROM outlast_ends GROUP BY queue, state;

-- @chain
SELECT s.*
FROM outlast_jobs AS j
CROSS JOIN outlast_job_state AS s
  ON s.seq IN (
    SELECT seq FROM outlast_jobs WHERE root = coalesce(j.root, j.seq)
    UNION ALL
    SELECT coalesce(j.root, j.seq)
  )
WHERE j.id = :id
ORDER BY s.seq;

-- @runs
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

-- @workers
SELECT
  instance_id, boot_id, info, started_at, seen_at, stopped_at,
  stopped_at IS NULL AND alive_until > :mono
FROM outlast_workers
WHERE started_at IS NOT NULL
ORDER BY started_at, instance_id, boot_id;

-- @events_of_no_job
SELECT e.id, e.at, NULL, e.run_id, e.kind, e.token, e.reason, e.detail, e.queue
FROM outlast_events AS e
WHERE e.job IS NULL
ORDER BY e.id;

-- @stream
-- Ids are given under the one write lock, so they become visible in their order.
SELECT e.id, e.at, j.id, e.run_id, e.kind, e.token, e.reason, e.detail, e.queue
FROM outlast_events AS e
LEFT JOIN outlast_jobs AS j ON j.seq = e.job
WHERE e.id > :after
ORDER BY e.id
LIMIT :limit;

-- @held
SELECT s.*
FROM (
  SELECT o.job
  FROM outlast_open_runs AS o
  LEFT JOIN outlast_workers AS k ON k.id = o.worker
  WHERE o.job > :after AND k.boot_id IS NOT :besides
    AND (:instance IS NULL OR k.instance_id = :instance)
  ORDER BY o.job
  LIMIT :limit
) AS o
CROSS JOIN outlast_job_state AS s ON s.seq = o.job
ORDER BY o.job;

-- @adrift
-- The left join over everything, once at every start.
SELECT s.*
FROM (
  SELECT j.seq
  FROM outlast_jobs AS j
  WHERE j.seq > :after
    AND NOT EXISTS (SELECT 1 FROM outlast_ends AS e WHERE e.job = j.seq)
    AND NOT EXISTS (SELECT 1 FROM outlast_waiting AS w WHERE w.job = j.seq)
    AND NOT EXISTS (SELECT 1 FROM outlast_open_runs AS o WHERE o.job = j.seq)
  ORDER BY j.seq
  LIMIT :limit
) AS j
CROSS JOIN outlast_job_state AS s ON s.seq = j.seq
ORDER BY j.seq;

-- @unfollowed
SELECT s.*
FROM (
  SELECT e.job
  FROM outlast_ends AS e INDEXED BY outlast_ends_state
  CROSS JOIN outlast_jobs AS j ON j.seq = e.job
  WHERE e.state = 'failed' AND e.job > :after AND j.delivery = 'linked'
    AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS n WHERE n.retry_of = e.job)
  ORDER BY e.job
  LIMIT :limit
) AS e
CROSS JOIN outlast_job_state AS s ON s.seq = e.job
ORDER BY e.job;

-- @orphans
-- Through every run there is, once at every start; foreign keys keep them out otherwise.
SELECT
  r.job, r.token, r.run_id, r.status, r.reason, k.instance_id, k.boot_id, r.started_at,
  r.finished_at, r.error, r.result, r.exit_code, r.log_path, r.artifacts
FROM outlast_runs AS r
LEFT JOIN outlast_workers AS k ON k.id = r.worker
WHERE NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = r.job)
LIMIT :limit;

-- @version
-- Changes whenever any other connection, of this process or another, has written.
PRAGMA data_version;
