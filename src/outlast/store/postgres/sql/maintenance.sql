-- @due
-- Each part but the last stops at the first row. The last returns the boots with open runs that the
-- operating system of this machine can prove dead.
SELECT
  EXISTS (
    SELECT 1 FROM outlast.open_runs
    WHERE lease_until <= (SELECT coalesce(:mono::bigint, outlast.micros()))
  ),
  EXISTS (
    SELECT 1 FROM outlast.waiting
    WHERE start_deadline IS NOT NULL AND CASE WHEN state = 'queued' THEN true ELSE false END
      AND start_deadline < (SELECT coalesce(:now::bigint, outlast.micros()))
  ),
  EXISTS (SELECT 1 FROM outlast.reservations WHERE status = 'active'),
  EXISTS (SELECT 1 FROM outlast.groups WHERE closing IS NOT NULL AND NOT swept)
  OR EXISTS (
    SELECT 1 FROM outlast.groups
    WHERE sealed_at IS NULL AND closing IS NULL
      AND created_at < (SELECT coalesce(:now::bigint, outlast.micros())) - :abandoned::bigint
  ),
  ARRAY(
    SELECT k.boot_id
    FROM (SELECT DISTINCT o.worker FROM outlast.open_runs AS o) AS h
    JOIN outlast.workers AS k ON k.id = h.worker
    WHERE starts_with(k.boot_id, :boot_prefix::text)
  );

-- @expired_leases
-- A scan of the open runs, which are few; an index on lease_until would cost every claim and
-- renewal.
SELECT s.*
FROM (
  SELECT job, seq, lease_until FROM outlast.open_runs
  WHERE lease_until <= (SELECT coalesce(:mono::bigint, outlast.micros()))
  ORDER BY lease_until, seq
  LIMIT :limit::bigint
) AS o
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = o.job OFFSET 0) AS s
ORDER BY o.lease_until, o.seq;

-- @missed_start_deadline
-- CASE hides the state from the planner, which would otherwise scan all queued jobs.
SELECT s.*
FROM (
  SELECT job, seq, start_deadline FROM outlast.waiting
  WHERE start_deadline IS NOT NULL AND CASE WHEN state = 'queued' THEN true ELSE false END
    AND start_deadline < (SELECT coalesce(:now::bigint, outlast.micros()))
  ORDER BY start_deadline, seq
  LIMIT :limit::bigint
) AS w
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = w.job OFFSET 0) AS s
ORDER BY w.start_deadline, w.seq;

-- @running_under_other_boots
SELECT s.*
FROM (
  SELECT o.job, o.seq
  FROM outlast.open_runs AS o
  LEFT JOIN LATERAL (
    SELECT * FROM outlast.workers AS h WHERE h.id = o.worker OFFSET 0
  ) AS k ON true
  WHERE o.seq > :after::bigint AND k.boot_id IS DISTINCT FROM :besides::text
    AND (:instance::text IS NULL OR k.instance_id = :instance::text)
  ORDER BY o.seq
  LIMIT :limit::bigint
) AS o
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = o.job OFFSET 0) AS s
ORDER BY o.seq;

-- @detached
-- An anti-join over all jobs, once at every start.
SELECT s.*
FROM (
  SELECT j.id, j.seq
  FROM outlast.jobs AS j
  WHERE j.seq > :after::bigint
    AND NOT EXISTS (SELECT 1 FROM outlast.ends AS e WHERE e.job = j.id)
    AND NOT EXISTS (SELECT 1 FROM outlast.waiting AS w WHERE w.job = j.id)
    AND NOT EXISTS (SELECT 1 FROM outlast.open_runs AS o WHERE o.job = j.id)
  ORDER BY j.seq
  LIMIT :limit::bigint
) AS j
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = j.id OFFSET 0) AS s
ORDER BY j.seq;

-- @missing_successors
SELECT s.*
FROM (
  SELECT e.job, e.seq
  FROM outlast.ends AS e
  WHERE e.state = 'failed' AND e.seq > :after::bigint
    AND (SELECT j.delivery FROM outlast.jobs AS j WHERE j.id = e.job) = 'linked'
    AND (SELECT n.id FROM outlast.jobs AS n WHERE n.retry_of = e.job) IS NULL
  ORDER BY e.seq
  LIMIT :limit::bigint
) AS e
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = e.job OFFSET 0) AS s
ORDER BY e.seq;

-- @find_orphans
-- Reads every run, once at every start.
SELECT
  r.job, r.token, r.run_id, r.status, r.reason, k.instance_id, k.boot_id, r.started_at,
  r.finished_at, r.error, r.result::text, r.exit_code, r.log_path,
  coalesce(r.artifacts, '[]')::text
FROM outlast.runs AS r
LEFT JOIN outlast.workers AS k ON k.id = r.worker
WHERE NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.id = r.job)
LIMIT :limit::bigint;

-- @remove_orphan
-- Copy and delete in one statement; no row if another transaction was first.
WITH gone AS (
  DELETE FROM outlast.runs AS r
  WHERE r.job = :job::uuid AND r.token = :token::integer
    AND NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.id = r.job)
  RETURNING r.token, r.run_id, r.status
)
INSERT INTO outlast.events (job, at, kind, token, run_id, reason, detail)
SELECT NULL, :now::bigint, 'orphan_run_removed', g.token, g.run_id, g.status, :detail::text
FROM gone AS g
RETURNING id, at, job, run_id, kind, token, reason, detail, queue;

-- @prunable_chains
-- Roots of chains whose last job ended before that moment, oldest first. FOR UPDATE keeps a retry
-- from adding a successor; SKIP LOCKED skips a job that is retried now. The limit counts locked
-- rows, so that workers which prune at the same time delete different chains.
SELECT coalesce(j.root, j.id)
FROM outlast.ends AS e
JOIN outlast.jobs AS j ON j.id = e.job
WHERE e.state IN ('succeeded', 'skipped', 'cancelled') AND e.at < :before::bigint
  AND (SELECT s.id FROM outlast.jobs AS s WHERE s.retry_of = e.job) IS NULL
  AND (SELECT k.job FROM outlast.jobs_of_live_groups AS k WHERE k.job = e.job) IS NULL
ORDER BY e.at, e.seq
LIMIT :limit::bigint
FOR UPDATE OF j SKIP LOCKED;

-- @ended_jobs
-- In the order of their index, behind the last job seen.
SELECT e.job, e.at, e.seq, j.type
FROM outlast.ends AS e
JOIN outlast.jobs AS j ON j.id = e.job
WHERE e.state IN ('succeeded', 'skipped', 'cancelled')
  AND e.at < (SELECT coalesce(:now::bigint, outlast.micros())) - :age::bigint
  AND e.at >= :at::bigint AND (e.at > :at::bigint OR e.seq > :seq::bigint)
ORDER BY e.at, e.seq
LIMIT :limit::bigint;

-- @prunable_among
-- Of these jobs, those that end a chain which may be deleted; the roots of these chains.
SELECT coalesce(j.root, j.id)
FROM outlast.ends AS e
JOIN outlast.jobs AS j ON j.id = e.job
WHERE e.job = ANY(:jobs::uuid[])
  AND e.state IN ('succeeded', 'skipped', 'cancelled') AND e.at < :before::bigint
  AND (SELECT s.id FROM outlast.jobs AS s WHERE s.retry_of = e.job) IS NULL
  AND (SELECT k.job FROM outlast.jobs_of_live_groups AS k WHERE k.job = e.job) IS NULL
ORDER BY e.at, e.seq
FOR UPDATE OF j SKIP LOCKED;

-- @chain_jobs
-- Every job of these chains, its group, and whether it has ended.
SELECT
  r.root, j.id, j.member_group_id,
  (SELECT 1 FROM outlast.ends AS e WHERE e.job = j.id) IS NOT NULL
FROM unnest(:roots::uuid[]) AS r (root)
CROSS JOIN LATERAL (
  SELECT i.id, i.member_group_id FROM outlast.jobs AS i WHERE i.id = r.root
  UNION ALL
  SELECT i.id, i.member_group_id FROM outlast.jobs AS i WHERE i.root = r.root
) AS j;

-- @delete_reservations
DELETE FROM outlast.reservations WHERE status <> 'active' AND job = ANY(:jobs::uuid[]);

-- @delete_jobs
-- Jobs first: a trigger refuses to delete the records of a stored job.
DELETE FROM outlast.jobs WHERE id = ANY(:jobs::uuid[]);

-- @delete_runs
WITH logs AS (DELETE FROM outlast.logs WHERE job = ANY(:jobs::uuid[]))
DELETE FROM outlast.runs WHERE job = ANY(:jobs::uuid[]);

-- @delete_ends
DELETE FROM outlast.ends WHERE job = ANY(:jobs::uuid[]);

-- @delete_events
DELETE FROM outlast.events WHERE job = ANY(:jobs::uuid[]);

-- @delete_groups
-- A group is deleted with the last of its members.
DELETE FROM outlast.groups AS g
WHERE g.id = ANY(:groups::uuid[])
  AND (SELECT 1 FROM outlast.jobs AS j WHERE j.member_group_id = g.id LIMIT 1) IS NULL;

-- @delete_empty_groups
-- Groups that were stopped before they had a member.
DELETE FROM outlast.groups AS g
WHERE g.sealed_at IS NULL AND g.swept AND g.created_at < :before::bigint
  AND NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.member_group_id = g.id);

-- @delete_ended_keys
-- A debounced job holds its key until its first claim, however late that is.
DELETE FROM outlast.keys AS k
USING (
  SELECT o.scope, o.key, o.bucket
  FROM outlast.keys AS o
  WHERE o.expires_at <= :now::bigint
    AND NOT (
      o.scope = 'debounce' AND (
        SELECT true FROM outlast.waiting AS w WHERE w.job = o.job AND w.token = 0 LIMIT 1
      ) IS NOT NULL
    )
  ORDER BY o.expires_at, o.scope, o.key, o.bucket
  LIMIT :limit::bigint
  FOR UPDATE SKIP LOCKED
) AS e
WHERE k.scope = e.scope AND k.key = e.key AND k.bucket = e.bucket;

-- @delete_events_of_no_job
-- Ids rise with time: only the oldest events are looked at. Ordered by job as well: otherwise the
-- plan is a scan of all events by id.
DELETE FROM outlast.events
WHERE id = ANY(ARRAY(
  SELECT e.id
  FROM (
    SELECT id, at FROM outlast.events WHERE job IS NULL ORDER BY job, id LIMIT :limit::bigint
  ) AS e
  WHERE e.at < :before::bigint
));
