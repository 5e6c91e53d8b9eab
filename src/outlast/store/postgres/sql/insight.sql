-- @backlog
SELECT
  queue, type, state, count(*), count(*) FILTER (WHERE available_at <= :now::bigint),
  min(available_at)
FROM outlast.waiting
GROUP BY queue, type, state
ORDER BY queue, type, state;

-- @running
SELECT o.queue, j.type, count(*), count(*) FILTER (WHERE o.lease_until <= :mono::bigint)
FROM outlast.open_runs AS o
JOIN outlast.jobs AS j ON j.id = o.job
GROUP BY o.queue, j.type
ORDER BY o.queue, j.type;

-- @ended
SELECT queue, state, count(*)
FROM outlast.ends
WHERE at >= :since::bigint
GROUP BY queue, state;

-- @job
SELECT s.* FROM outlast.job_state AS s WHERE s.id = :id::uuid;

-- @queue
SELECT concurrency, paused_at, pause_reason, resume_at
FROM outlast.queues
WHERE name = :queue::text;

-- @open_runs
-- The number of open runs, and the first three.
SELECT o.job, k.instance_id, count(*) OVER ()
FROM outlast.open_runs AS o
LEFT JOIN outlast.workers AS k ON k.id = o.worker
WHERE o.queue = :queue::text
ORDER BY o.started_at, o.seq
LIMIT 3;

-- @reservation
SELECT id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM outlast.reservations
WHERE queue = :queue::text AND status = 'active';

-- @overlap
SELECT o.job, k.instance_id
FROM outlast.open_runs AS o
LEFT JOIN outlast.workers AS k ON k.id = o.worker
WHERE o.delivery = 'once' AND o.name = :name::text;

-- @blocking_member
-- The unended member before this one in its group; a chain has the place of its root.
SELECT j.id
FROM outlast.jobs AS own
JOIN outlast.groups AS g ON g.id = own.member_group_id AND g.sealed_at IS NOT NULL
JOIN outlast.jobs AS j ON j.member_group_id = own.member_group_id
LEFT JOIN outlast.jobs AS r ON r.id = j.root
LEFT JOIN outlast.ends AS e ON e.job = j.id
WHERE own.id = :id::uuid AND e.job IS NULL AND coalesce(r.seq, j.seq) < own.seq
ORDER BY coalesce(r.seq, j.seq) DESC
LIMIT 1;

-- @ahead
-- As the claim sees it: a due job counts as queued; a job past its start deadline is skipped, and
-- so is a `once` job whose name runs. Of several with one name only the first counts.
WITH ahead AS NOT MATERIALIZED (
  SELECT w.job, w.delivery, w.name, w.claim_order
  FROM outlast.waiting AS w
  WHERE w.queue = :queue::text
    AND (:types::text[] IS NULL OR w.type = ANY (:types::text[]))
    AND (
      w.state = 'queued'
      OR w.state IN ('scheduled', 'retry_wait') AND w.available_at <= :now::bigint
    )
    AND w.claim_order < (
      SELECT own.claim_order FROM outlast.waiting AS own WHERE own.job = :id::uuid
    )
    AND (w.start_deadline IS NULL OR w.token > 0 OR w.start_deadline >= :now::bigint)
    AND (
      w.delivery <> 'once'
      OR NOT EXISTS (
        SELECT 1 FROM outlast.open_runs AS o WHERE o.delivery = 'once' AND o.name = w.name
      )
    )
)
SELECT
  (
    SELECT count(*)
    FROM (
      SELECT DISTINCT CASE delivery WHEN 'once' THEN name ELSE job::text END
      FROM ahead
      LIMIT :most::bigint
    ) AS few
  ),
  (SELECT a.job FROM ahead AS a ORDER BY a.claim_order LIMIT 1);

-- @runs_by_worker
-- The number of open runs of each worker.
SELECT k.instance_id, k.boot_id, count(*)
FROM outlast.open_runs AS o
JOIN outlast.workers AS k ON k.id = o.worker
GROUP BY k.id;

-- @describe
SELECT
  current_setting('server_version'),
  current_database(),
  (SELECT version FROM outlast.meta),
  (
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema::text AND c.relkind = 'r'
  ),
  current_setting('synchronous_commit'),
  current_setting('fsync');
