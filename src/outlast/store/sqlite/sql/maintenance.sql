-- @expired_leases
SELECT s.*
FROM (
  SELECT job, lease_until FROM outlast_open_runs
  WHERE lease_until <= :mono
  ORDER BY lease_until, job
  LIMIT :limit
) AS o
CROSS JOIN outlast_job_state AS s ON s.seq = o.job
ORDER BY o.lease_until, o.job;

-- @due
-- Each part stops at its first row and uses a small partial index.
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

-- @boots_with_open_runs
-- Boot ids with open runs, of the workers whose boot id is the name of a lock.
SELECT DISTINCT k.boot_id
FROM outlast_open_runs AS o
CROSS JOIN outlast_workers AS k ON k.id = o.worker
WHERE k.boot_id GLOB :pattern;

-- @missed_start_deadline
SELECT s.*
FROM (
  SELECT job, start_deadline FROM outlast_waiting
  WHERE start_deadline IS NOT NULL AND start_deadline < :now AND state = 'queued'
  ORDER BY start_deadline, job
  LIMIT :limit
) AS w
CROSS JOIN outlast_job_state AS s ON s.seq = w.job
ORDER BY w.start_deadline, w.job;

-- @other_boots
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

-- @detached
-- A full scan, once at every start.
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

-- @missing_successors
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
-- A full scan of the runs, once at every start; foreign keys prevent orphans otherwise.
SELECT
  r.job, r.token, r.run_id, r.status, r.reason, k.instance_id, k.boot_id, r.started_at,
  r.finished_at, r.error, r.result, r.exit_code, r.log_path, r.artifacts
FROM outlast_runs AS r
LEFT JOIN outlast_workers AS k ON k.id = r.worker
WHERE NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = r.job)
LIMIT :limit;

-- @record_orphan
INSERT INTO outlast_events (job, at, kind, token, run_id, reason, detail)
SELECT NULL, :now, 'orphan_run_removed', r.token, r.run_id, r.status, :detail
FROM outlast_runs AS r
WHERE r.run_id = :run_id
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = r.job);

-- @delete_orphan
DELETE FROM outlast_runs WHERE run_id = :run_id;

-- @select_ended_chains
-- One index range per final state, so that the cost does not grow with history.
INSERT INTO temp.outlast_selected (job)
SELECT coalesce(j.root, j.seq)
FROM (
  SELECT * FROM (
    SELECT e.job, e.at FROM outlast_ends AS e
    WHERE e.state = 'succeeded' AND e.at < :before
      AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS s WHERE s.retry_of = e.job)
      AND NOT EXISTS (SELECT 1 FROM outlast_grouped AS k WHERE k.job = e.job)
    ORDER BY e.at, e.job
    LIMIT :limit
  )
  UNION ALL
  SELECT * FROM (
    SELECT e.job, e.at FROM outlast_ends AS e
    WHERE e.state = 'skipped' AND e.at < :before
      AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS s WHERE s.retry_of = e.job)
      AND NOT EXISTS (SELECT 1 FROM outlast_grouped AS k WHERE k.job = e.job)
    ORDER BY e.at, e.job
    LIMIT :limit
  )
  UNION ALL
  SELECT * FROM (
    SELECT e.job, e.at FROM outlast_ends AS e
    WHERE e.state = 'cancelled' AND e.at < :before
      AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS s WHERE s.retry_of = e.job)
      AND NOT EXISTS (SELECT 1 FROM outlast_grouped AS k WHERE k.job = e.job)
    ORDER BY e.at, e.job
    LIMIT :limit
  )
) AS e
CROSS JOIN outlast_jobs AS j ON j.seq = e.job
ORDER BY e.at, e.job
LIMIT :limit;

-- @ended_jobs
-- One index range per final state, each behind the last job seen.
SELECT e.job, e.at, j.id, j.type
FROM (
  SELECT * FROM (
    SELECT job, at FROM outlast_ends
    WHERE state = 'succeeded' AND at >= :at AND at < :before AND (at > :at OR job > :seq)
    ORDER BY at, job
    LIMIT :limit
  )
  UNION ALL
  SELECT * FROM (
    SELECT job, at FROM outlast_ends
    WHERE state = 'skipped' AND at >= :at AND at < :before AND (at > :at OR job > :seq)
    ORDER BY at, job
    LIMIT :limit
  )
  UNION ALL
  SELECT * FROM (
    SELECT job, at FROM outlast_ends
    WHERE state = 'cancelled' AND at >= :at AND at < :before AND (at > :at OR job > :seq)
    ORDER BY at, job
    LIMIT :limit
  )
) AS e
CROSS JOIN outlast_jobs AS j ON j.seq = e.job
ORDER BY e.at, e.job
LIMIT :limit;

-- @select_among
-- Of these jobs, those that end a chain which may be deleted.
INSERT INTO temp.outlast_selected (job)
SELECT coalesce(j.root, j.seq)
FROM json_each(:jobs) AS i
CROSS JOIN outlast_ends AS e ON e.job = i.value
CROSS JOIN outlast_jobs AS j ON j.seq = e.job
WHERE e.state IN ('succeeded', 'skipped', 'cancelled') AND e.at < :before
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS s WHERE s.retry_of = e.job)
  AND NOT EXISTS (SELECT 1 FROM outlast_grouped AS k WHERE k.job = e.job);

-- @groups_of_selected
SELECT json_group_array(DISTINCT j.member_of)
FROM temp.outlast_selected AS p
CROSS JOIN outlast_jobs AS j ON j.seq = p.job
WHERE j.member_of IS NOT NULL;

-- @delete_selected
-- Runs, logs, ends and events are deleted by cascade; keys and slots stay.
DELETE FROM outlast_jobs
WHERE seq IN (SELECT job FROM temp.outlast_selected)
  OR root IN (SELECT job FROM temp.outlast_selected);

-- @delete_groups
-- A group is deleted with the last of its members.
DELETE FROM outlast_groups
WHERE seq IN (SELECT value FROM json_each(:groups))
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.member_of = outlast_groups.seq);

-- @delete_empty_groups
-- Groups that were stopped before they had any member.
DELETE FROM outlast_groups
WHERE sealed_at IS NULL AND swept AND created_at < :before
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.member_of = outlast_groups.seq);

-- @delete_ended_keys
-- A debounced job holds its key until its first claim, however late that is.
DELETE FROM outlast_keys
WHERE (scope, key, bucket) IN (
  SELECT k.scope, k.key, k.bucket
  FROM outlast_keys AS k INDEXED BY outlast_keys_ended
  WHERE k.expires_at <= :now
    AND NOT (
      k.scope = 'debounce' AND EXISTS (
        SELECT 1
        FROM outlast_jobs AS j
        CROSS JOIN outlast_waiting AS w ON w.job = j.seq
        WHERE j.id = k.job_id AND w.token = 0
      )
    )
  ORDER BY k.expires_at, k.scope, k.key, k.bucket
  LIMIT :limit
);

-- @delete_events_of_no_job
-- Ids rise with time: only the oldest events are looked at.
DELETE FROM outlast_events
WHERE id IN (
  SELECT e.id
  FROM (SELECT id, at FROM outlast_events WHERE job IS NULL ORDER BY id LIMIT :limit) AS e
  WHERE e.at < :before
);
