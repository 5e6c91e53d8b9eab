-- @get
SELECT s.* FROM json_each(:ids) AS i CROSS JOIN outlast_job_state AS s ON s.id = i.value;

-- @peek
-- The index of the claim order is by type. So it finds the waiting types, then the first jobs of
-- each, and sorts them together with the jobs that the next claim would promote. The direct job of
-- an active reservation is not part of the order.
WITH RECURSIVE direct (job) AS (
  SELECT j.seq
  FROM outlast_reservations AS r
  CROSS JOIN outlast_jobs AS j ON j.id = r.job_id
  WHERE r.queue = :queue AND r.status = 'active'
),
types (type) AS (
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
        AND i.job IS NOT (SELECT job FROM direct)
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
    WHERE d.queue = :queue AND d.job IS NOT (SELECT job FROM direct)
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
-- Starts from the state tables, so that the cost does not grow with succeeded jobs.
SELECT s.*
FROM (
  SELECT * FROM (
    SELECT w.job FROM outlast_waiting AS w
    WHERE w.state IN (SELECT value FROM json_each(:states))
      AND (:before IS NULL OR w.job < :before)
      AND (:queue IS NULL OR w.queue = :queue)
      AND (:type IS NULL OR w.type = :type)
      AND (
        :labels IS NULL
        OR NOT EXISTS (
          SELECT 1 FROM json_each(:labels) AS l
          WHERE NOT EXISTS (
            SELECT 1 FROM outlast_labels AS h WHERE h.label = l.value AND h.job = w.job
          )
        )
      )
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
      AND (
        :labels IS NULL
        OR NOT EXISTS (
          SELECT 1 FROM json_each(:labels) AS l
          WHERE NOT EXISTS (
            SELECT 1 FROM outlast_labels AS h WHERE h.label = l.value AND h.job = o.job
          )
        )
      )
    ORDER BY o.job DESC
    LIMIT :limit
  )
  UNION ALL
  SELECT e.job
  FROM json_each(:states) AS t
  CROSS JOIN outlast_ends AS e ON e.job IN (
    SELECT i.job FROM outlast_ends AS i INDEXED BY outlast_ends_unsuccessful
    CROSS JOIN outlast_jobs AS j ON j.seq = i.job
    WHERE i.state = t.value AND i.state <> 'succeeded'
      AND (:before IS NULL OR i.job < :before)
      AND (:queue IS NULL OR i.queue = :queue)
      AND (:type IS NULL OR j.type = :type)
      AND (
        :labels IS NULL
        OR NOT EXISTS (
          SELECT 1 FROM json_each(:labels) AS l
          WHERE NOT EXISTS (
            SELECT 1 FROM outlast_labels AS h WHERE h.label = l.value AND h.job = i.job
          )
        )
      )
    ORDER BY i.job DESC
    LIMIT :limit
  )
  ORDER BY 1 DESC
  LIMIT :limit
) AS found
CROSS JOIN outlast_job_state AS s ON s.seq = found.job
ORDER BY s.seq DESC;

-- @label_counts
-- How many jobs have each label, counted up to :most.
SELECT
  l.value,
  (SELECT count(*) FROM (SELECT 1 FROM outlast_labels AS h WHERE h.label = l.value LIMIT :most))
FROM json_each(:labels) AS l;

-- @find_label
-- From the newest job with :label down until the page is full.
SELECT s.*
FROM outlast_labels AS n
CROSS JOIN outlast_job_state AS s ON s.seq = n.job
WHERE n.label = :label
  AND n.job < coalesce(:before, 9223372036854775807)
  AND (:queue IS NULL OR s.queue = :queue)
  AND (:type IS NULL OR s.type = :type)
  AND (:states IS NULL OR s.state IN (SELECT value FROM json_each(:states)))
  AND (
    :labels IS NULL
    OR NOT EXISTS (
      SELECT 1 FROM json_each(:labels) AS l
      WHERE NOT EXISTS (
        SELECT 1 FROM outlast_labels AS h WHERE h.label = l.value AND h.job = n.job
      )
    )
  )
ORDER BY n.job DESC
LIMIT :limit;

-- @find_id
-- All characters of an id sort before `~`.
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
WHERE k.scope IN ('key', 'active', 'window', 'debounce') AND k.key = :key AND (:before IS NULL OR s.seq < :before)
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
