-- @record_orphan
INSERT INTO outlast_events (job, at, kind, token, run_id, reason, detail)
SELECT NULL, :now, 'orphan_run_removed', r.token, r.run_id, r.status, :detail
FROM outlast_runs AS r
WHERE r.run_id = :run_id
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = r.job);

-- @delete_orphan
DELETE FROM outlast_runs WHERE run_id = :run_id;

-- @pick
-- Each kind of end by its own index range, so that the cost does not grow with history.
INSERT INTO temp.outlast_picked (job)
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

-- @groups_of
SELECT json_group_array(DISTINCT j.member_of)
FROM temp.outlast_picked AS p
CROSS JOIN outlast_jobs AS j ON j.seq = p.job
WHERE j.member_of IS NOT NULL;

-- @delete
-- Runs, ends and events go with their job; keys and slots stay.
DELETE FROM outlast_jobs
WHERE seq IN (SELECT job FROM temp.outlast_picked)
  OR root IN (SELECT job FROM temp.outlast_picked);

-- @groups
-- A group goes with the last of its members.
DELETE FROM outlast_groups
WHERE seq IN (SELECT value FROM json_each(:groups))
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.member_of = outlast_groups.seq);

-- @empty_groups
-- Those that were stopped before they had any.
DELETE FROM outlast_groups
WHERE sealed_at IS NULL AND swept AND created_at < :before
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.member_of = outlast_groups.seq);
