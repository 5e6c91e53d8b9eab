-- @record
INSERT INTO outlast_events (job, at, kind, token, run_id, reason, detail)
SELECT NULL, :now, 'orphan_run_removed', r.token, r.run_id, r.status, :detail
FROM outlast_runs AS r
WHERE r.run_id = :run_id
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = r.job);

-- @delete
DELETE FROM outlast_runs WHERE run_id = :run_id;
