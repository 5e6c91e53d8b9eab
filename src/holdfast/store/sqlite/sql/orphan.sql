-- @record
INSERT INTO holdfast_events (job, at, kind, token, run_id, reason, detail)
SELECT NULL, :now, 'orphan_run_removed', r.token, r.run_id, r.status, :detail
FROM holdfast_runs AS r
WHERE r.run_id = :run_id
  AND NOT EXISTS (SELECT 1 FROM holdfast_jobs AS j WHERE j.seq = r.job);

-- @delete
DELETE FROM holdfast_runs WHERE run_id = :run_id;
