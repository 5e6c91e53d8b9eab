-- @backlog
SELECT queue, type, state, count(*), sum(available_at <= :now), min(available_at)
FROM outlast_waiting
GROUP BY queue, type, state
ORDER BY queue, type, state;

-- @running
SELECT o.queue, j.type, count(*), sum(o.lease_until <= :mono)
FROM outlast_open_runs AS o
CROSS JOIN outlast_jobs AS j ON j.seq = o.job
GROUP BY o.queue, j.type
ORDER BY o.queue, j.type;

-- @ended
SELECT queue, state, count(*)
FROM outlast_ends INDEXED BY outlast_ends_state
WHERE state IN ('succeeded', 'failed', 'dead_letter', 'skipped', 'cancelled') AND at >= :since
GROUP BY queue, state;

-- @job
SELECT s.* FROM outlast_job_state AS s WHERE s.id = :id;

-- @queue
SELECT concurrency, paused_at, pause_reason, resume_at FROM outlast_queues WHERE name = :queue;

-- @open_runs
-- How many there are, and the few that began first.
SELECT j.id, k.instance_id, count(*) OVER ()
FROM outlast_open_runs AS o
CROSS JOIN outlast_jobs AS j ON j.seq = o.job
LEFT JOIN outlast_workers AS k ON k.id = o.worker
WHERE o.queue = :queue
ORDER BY o.started_at, o.job
LIMIT 3;

-- @overlap
SELECT j.id, k.instance_id
FROM outlast_open_runs AS o
CROSS JOIN outlast_jobs AS j ON j.seq = o.job
LEFT JOIN outlast_workers AS k ON k.id = o.worker
WHERE o.delivery = 'once' AND o.name = :name;

-- @member
-- The member of its group before it that has not ended; a chain stands where it began.
SELECT j.id
FROM outlast_jobs AS own
CROSS JOIN outlast_groups AS g ON g.seq = own.member_of AND g.sealed_at IS NOT NULL
CROSS JOIN outlast_jobs AS j ON j.member_of = own.member_of AND coalesce(j.root, j.seq) < own.seq
LEFT JOIN outlast_ends AS e ON e.job = j.seq
WHERE own.id = :id AND e.job IS NULL
ORDER BY coalesce(j.root, j.seq) DESC
LIMIT 1;

-- @ahead
-- As the claim looks: what is due counts as queued, what is too late is passed over, and so is a
-- `once` job whose name runs; of those of one name only the first is taken.
WITH ahead AS NOT MATERIALIZED (
  SELECT w.job, w.delivery, w.name, w.priority, w.position, w.available_at, w.created_at
  FROM outlast_waiting AS w
  WHERE w.queue = :queue
    AND (:types IS NULL OR w.type IN (SELECT value FROM json_each(:types)))
    AND (
      w.state = 'queued'
      OR w.state IN ('scheduled', 'retry_wait') AND w.available_at <= :now
    )
    AND (-w.priority, w.position, w.available_at, w.created_at, w.job)
      < (-:priority, :position, :available_at, :created_at, :seq)
    AND (w.start_deadline IS NULL OR w.start_deadline >= :now)
    AND (
      w.delivery <> 'once'
      OR NOT EXISTS (
        SELECT 1 FROM outlast_open_runs AS o WHERE o.delivery = 'once' AND o.name = w.name
      )
    )
)
SELECT
  (
    SELECT count(*)
    FROM (SELECT DISTINCT CASE delivery WHEN 'once' THEN name ELSE job END FROM ahead LIMIT :most)
  ),
  (
    SELECT j.id
    FROM ahead AS a
    CROSS JOIN outlast_jobs AS j ON j.seq = a.job
    ORDER BY a.priority DESC, a.position, a.available_at, a.created_at, a.job
    LIMIT 1
  );

-- @open_runs_by_worker
-- What each worker has in hand.
SELECT k.instance_id, k.boot_id, count(*)
FROM outlast_open_runs AS o
CROSS JOIN outlast_workers AS k ON k.id = o.worker
GROUP BY k.id;

-- @describe
SELECT
  sqlite_version(),
  (SELECT version FROM outlast_meta),
  (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size),
  (SELECT journal_mode FROM pragma_journal_mode),
  (SELECT synchronous FROM pragma_synchronous);
