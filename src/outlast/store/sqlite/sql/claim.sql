-- @promote
UPDATE outlast_waiting
SET state = 'queued'
WHERE job IN (
  SELECT job FROM outlast_waiting
  WHERE state IN ('scheduled', 'retry_wait') AND available_at <= :now
  ORDER BY available_at, job
  LIMIT :limit
);

-- @gate
-- The queue gate: always one row.
SELECT
  coalesce(q.paused_at IS NOT NULL AND (q.resume_at IS NULL OR q.resume_at > :now), 0),
  q.concurrency,
  r.id IS NOT NULL,
  j.seq
FROM (SELECT 1)
LEFT JOIN outlast_queues AS q ON q.name = :queue
LEFT JOIN outlast_reservations AS r ON r.queue = :queue AND r.status = 'active'
LEFT JOIN outlast_jobs AS j ON j.id = r.job_id;

-- @count_open
-- A scan: open runs are few, and an index would slow every claim and every end.
SELECT count(*) FROM outlast_open_runs WHERE queue = :queue;

-- @clear
DELETE FROM temp.outlast_selected;

-- @select
-- The index range of each type yields its first jobs; only those are sorted together. Beyond
-- :limit only `lease` jobs without a loss and with two attempts left may be prefetched, hence two
-- ranges per type.
INSERT INTO temp.outlast_selected (job)
SELECT job
FROM (
  SELECT
    w.job,
    w.delivery,
    w.failures,
    w.losses,
    row_number() OVER (
      ORDER BY w.priority DESC, w.position, w.available_at, w.created_at, w.job
    ) AS claim_order
  FROM json_each(:types) AS t
  CROSS JOIN outlast_waiting AS w ON w.job IN (
    SELECT job FROM (
      SELECT i.job FROM outlast_waiting AS i
      WHERE i.queue = :queue AND i.type = t.value AND i.state = 'queued'
        AND (i.start_deadline IS NULL OR i.start_deadline >= :now)
        AND (
          i.delivery <> 'once'
          OR NOT EXISTS (
            SELECT 1 FROM outlast_open_runs AS o WHERE o.delivery = 'once' AND o.name = i.name
          )
          AND i.job = (
            SELECT e.job FROM outlast_waiting AS e
            WHERE e.delivery = 'once' AND e.name = i.name AND e.queue = i.queue
              AND e.state = 'queued'
              AND (e.start_deadline IS NULL OR e.start_deadline >= :now)
              AND e.type IN (SELECT value FROM json_each(:types))
            ORDER BY e.priority DESC, e.position, e.available_at, e.created_at, e.job
            LIMIT 1
          )
        )
      ORDER BY i.priority DESC, i.position, i.available_at, i.created_at, i.job
      LIMIT :limit
    )
    UNION
    SELECT job FROM (
      SELECT i.job FROM outlast_waiting AS i
      WHERE i.queue = :queue AND i.type = t.value AND i.state = 'queued'
        AND (i.start_deadline IS NULL OR i.start_deadline >= :now)
        AND i.delivery = 'lease' AND i.losses = 0 AND :prefetch > 0
        AND (
          SELECT j.max_attempts IS NULL OR j.max_attempts > i.failures + 1
          FROM outlast_jobs AS j WHERE j.seq = i.job
        )
      ORDER BY i.priority DESC, i.position, i.available_at, i.created_at, i.job
      LIMIT :limit + :prefetch
    )
  )
)
WHERE claim_order <= :limit
  OR delivery = 'lease' AND losses = 0 AND (
    SELECT j.max_attempts IS NULL OR j.max_attempts > failures + 1
    FROM outlast_jobs AS j WHERE j.seq = job
  )
ORDER BY claim_order
LIMIT :limit + :prefetch;

-- @select_reserved
-- Only the reserved job; all other conditions of a claim still apply.
INSERT INTO temp.outlast_selected (job)
SELECT w.job
FROM outlast_waiting AS w
WHERE w.job = :job AND w.state = 'queued'
  AND w.type IN (SELECT value FROM json_each(:types))
  AND (w.start_deadline IS NULL OR w.start_deadline >= :now)
  AND (
    w.delivery <> 'once'
    OR NOT EXISTS (
      SELECT 1 FROM outlast_open_runs AS o WHERE o.delivery = 'once' AND o.name = w.name
    )
  );

-- @fitting
-- How many of the selected jobs fit: up to the one whose params reach :most bytes. The recursion
-- reads no params beyond that.
WITH RECURSIVE fitting (n, bytes) AS (
  SELECT 0, 0
  UNION ALL
  SELECT
    f.n + 1,
    f.bytes + (
      SELECT length(CAST(j.params AS BLOB))
      FROM temp.outlast_selected AS p
      CROSS JOIN outlast_jobs AS j ON j.seq = p.job
      WHERE p.n = f.n + 1
    )
  FROM fitting AS f
  WHERE f.bytes < :most AND f.n < :selected
)
SELECT max(n) FROM fitting;

-- @leave_rest
DELETE FROM temp.outlast_selected WHERE n > :fitting;

-- @next_due
-- When the next job becomes due that this claim would take. Of many jobs of others only the first
-- are read; then none becomes due before the last of those.
SELECT min(available_at)
FROM (
  SELECT queue, type, available_at, row_number() OVER (ORDER BY available_at, job) AS place
  FROM (
    SELECT queue, type, available_at, job
    FROM outlast_waiting
    WHERE state IN ('scheduled', 'retry_wait') AND available_at > :now
    ORDER BY available_at, job
    LIMIT :most
  )
)
WHERE place = :most OR queue = :queue AND type IN (SELECT value FROM json_each(:types));

-- @count_waiting
SELECT count(*)
FROM (
  SELECT 1
  FROM json_each(:types) AS t
  CROSS JOIN outlast_waiting AS w
  WHERE w.queue = :queue AND w.type = t.value AND w.state = 'queued'
  LIMIT :most
);

-- @worker
INSERT INTO outlast_workers (instance_id, boot_id)
VALUES (:instance, :boot)
ON CONFLICT DO NOTHING;

-- @open
INSERT INTO outlast_open_runs (
  job, run_id, token, worker, started_at, lease_until,
  queue, name, delivery, priority, position, available_at, failures, losses, member_of
)
SELECT
  w.job, :prefix || printf('%06x', p.n - 1), w.token + 1, k.id, :now, :until,
  w.queue, w.name, w.delivery, w.priority, w.position, w.available_at, w.failures, w.losses, w.member_of
FROM temp.outlast_selected AS p
CROSS JOIN outlast_workers AS k ON k.instance_id = :instance AND k.boot_id = :boot
CROSS JOIN outlast_waiting AS w ON w.job = p.job;

-- @leave_waiting
DELETE FROM outlast_waiting WHERE job IN (SELECT job FROM temp.outlast_selected);

-- @claimed
-- One row for all claims: fetching many rows would switch the interpreter lock for each.
SELECT json_group_array(
  json_array(
    j.id, o.token, o.run_id, j.type, j.params, j.delivery, o.failures, o.losses, j.max_attempts,
    j.slot_at, j.metadata
  )
)
FROM temp.outlast_selected AS p
CROSS JOIN outlast_open_runs AS o ON o.job = p.job
CROSS JOIN outlast_jobs AS j ON j.seq = p.job;
