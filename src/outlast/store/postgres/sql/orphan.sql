-- @find
-- Through every run there is, once at every start.
SELECT
  r.job, r.token, r.run_id, r.status, r.reason, k.instance_id, k.boot_id, r.started_at,
  r.finished_at, r.error, r.result::text, r.exit_code, r.log_path,
  coalesce(r.artifacts, '[]')::text
FROM outlast.runs AS r
LEFT JOIN outlast.workers AS k ON k.id = r.worker
WHERE NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.id = r.job)
LIMIT :limit::bigint;

-- @remove
-- Its copy and its end together; nothing where somebody was quicker.
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
