-- @clear
DELETE FROM temp.outlast_finished;

-- @load
-- The fence: only runs that are open under exactly this token come in.
INSERT INTO temp.outlast_finished
SELECT
  c.key, o.job, o.member_of, coalesce(r.id, j.id), o.token, o.run_id, o.worker, o.started_at, o.artifacts,
  o.progress, c.value ->> 2, o.queue, o.priority, o.position, o.available_at, o.failures, o.losses
FROM json_each(:changes) AS c
CROSS JOIN outlast_jobs AS j ON j.id = c.value ->> 0
CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = c.value ->> 1
LEFT JOIN outlast_jobs AS r ON r.seq = j.root;

-- @close
INSERT INTO outlast_runs (
  job, token, run_id, status, worker, started_at, finished_at, result, artifacts,
  progress
)
SELECT job, token, run_id, 'succeeded', worker, started_at, :now, result, artifacts,
  progress
FROM temp.outlast_finished;

-- @drop_open
DELETE FROM outlast_open_runs WHERE job IN (SELECT job FROM temp.outlast_finished);

-- @end
INSERT INTO outlast_ends (
  job, state, at, queue, priority, position, available_at, token, failures, losses
)
SELECT
  job, 'succeeded', :now, queue, priority, position, available_at, token, failures, losses
FROM temp.outlast_finished;

-- @free_keys
DELETE FROM outlast_keys
WHERE scope = 'active' AND job_id IN (SELECT root_id FROM temp.outlast_finished);

-- @grouped
-- Success moves a sequential group alone.
SELECT f.job, f.token, coalesce(j.root, j.seq), g.seq, g.mode, g.on_failure, 'succeeded', 0
FROM temp.outlast_finished AS f
CROSS JOIN outlast_groups AS g ON g.seq = f.member_of
CROSS JOIN outlast_jobs AS j ON j.seq = f.job
WHERE g.mode = 'sequential' AND g.closing IS NULL
ORDER BY f.n;

-- @accepted
SELECT json_group_array(n) FROM temp.outlast_finished;

-- @limited
-- Queues in which there is room again.
SELECT json_group_array(q.name)
FROM outlast_queues AS q INDEXED BY outlast_queues_limited
WHERE q.concurrency IS NOT NULL AND q.name IN (SELECT queue FROM temp.outlast_finished);
