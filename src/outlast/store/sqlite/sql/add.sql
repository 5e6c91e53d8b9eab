-- @known
-- A repeated enqueue finds the job it stored before.
SELECT 1 FROM outlast_jobs WHERE id = :id;

-- @job
INSERT INTO outlast_jobs (
  id, type, name, params, queue, delivery, max_attempts, created_at,
  slot_at, start_deadline, retry_of, root, group_id, member_of, template_id, template_at,
  schedule_id, active_key, metadata
)
VALUES (
  :id, :type, :name, :params, :queue, :delivery, :max_attempts, :now,
  :slot_at, :start_deadline, :retry_of, :root, :group_id, :member_of, :template_id, :template_at,
  :schedule_id, :active_key, :metadata
);

-- @wait
-- In a `position` queue the job goes behind the last waiting job of its priority.
INSERT INTO outlast_waiting (
  job, state, queue, type, name, delivery, priority, position,
  available_at, created_at, start_deadline, token, failures, losses, member_of
)
VALUES (
  :job, :state, :queue, :type, :name, :delivery, :priority,
  coalesce(
    (
      SELECT q.gap + max(
        0,
        coalesce(
          (
            SELECT max(o.position) FROM outlast_waiting AS o
            WHERE o.queue = :queue AND o.priority = :priority AND o.position <> 0
          ),
          0
        )
      )
      FROM outlast_queues AS q
      WHERE q.name = :queue AND q.ordering = 'position'
    ),
    0
  ),
  :available_at, :now, :start_deadline, 0, 0, 0, :member_of
);

-- @job_batch
-- Jobs that differ only in id and params.
INSERT INTO outlast_jobs (
  id, type, name, params, queue, delivery, max_attempts, created_at,
  slot_at, start_deadline, group_id, member_of, template_id, template_at, schedule_id,
  metadata
)
SELECT
  n.value ->> 0, :type, :name, n.value ->> 1, :queue, :delivery, :max_attempts, :now,
  :slot_at, :start_deadline, :group_id, :member_of, :template_id, :template_at, :schedule_id,
  :metadata
FROM json_each(:jobs) AS n;

-- @wait_batch
INSERT INTO outlast_waiting (
  job, state, queue, type, name, delivery, priority, position,
  available_at, created_at, start_deadline, token, failures, losses, member_of
)
SELECT
  j.seq, :state, :queue, :type, :name, :delivery, :priority, 0,
  :available_at, :now, :start_deadline, 0, 0, 0, :member_of
FROM outlast_jobs AS j
WHERE j.seq >= :first;

-- @set_positions
-- In a `position` queue each new job goes behind the last waiting job of its priority. New jobs
-- have no position yet, so the index of positions contains only the others.
UPDATE outlast_waiting
SET position = p.position
FROM (
  SELECT
    w.job,
    max(
      0,
      coalesce(
        (
          SELECT max(o.position) FROM outlast_waiting AS o INDEXED BY outlast_waiting_position
          WHERE o.queue = w.queue AND o.priority = w.priority AND o.position <> 0
        ),
        0
      )
    ) + q.gap * row_number() OVER (PARTITION BY w.queue, w.priority ORDER BY w.job) AS position
  FROM outlast_waiting AS w NOT INDEXED
  CROSS JOIN outlast_queues AS q ON q.name = w.queue
  WHERE w.job >= :first AND q.ordering = 'position'
) AS p
WHERE outlast_waiting.job = p.job;

-- @slot_holder
SELECT job_id FROM outlast_slots WHERE series = :series AND slot_at = :at;

-- @key_holder
SELECT job_id FROM outlast_keys WHERE scope = :scope AND key = :key AND bucket = :bucket;

-- @claim_slot
-- A manual claim also claims a slot that was written without a job, and its row says so.
INSERT INTO outlast_slots (series, slot_at, outcome, planned, actual, schedule_id, job_id)
SELECT :series, :at, 'manual', :at, :now, j.schedule_id, coalesce(r.id, j.id)
FROM outlast_jobs AS j
LEFT JOIN outlast_jobs AS r ON r.seq = j.root
WHERE j.id = :id
ON CONFLICT (series, slot_at) DO UPDATE
SET
  outcome = excluded.outcome,
  actual = excluded.actual,
  job_id = excluded.job_id,
  reason = outcome
WHERE job_id IS NULL;

-- @claim_key
INSERT INTO outlast_keys (scope, key, bucket, job_id)
SELECT :scope, :key, :bucket, root_id FROM outlast_job_state WHERE id = :id;

-- @predecessor
-- The predecessor and the root of its chain, or why it cannot have a successor.
SELECT
  j.seq,
  coalesce(j.root, j.seq),
  CASE
    WHEN j.seq IS NULL THEN 'there is no job ' || :id
    WHEN e.job IS NULL THEN 'job ' || :id || ' has not ended'
    WHEN s.seq IS NOT NULL THEN 'job ' || :id || ' has a successor already: ' || s.id
  END
FROM (SELECT 1)
LEFT JOIN outlast_jobs AS j ON j.id = :id
LEFT JOIN outlast_ends AS e ON e.job = j.seq
LEFT JOIN outlast_jobs AS s ON s.retry_of = j.seq;

-- @retried
-- The event of the predecessor, in the write that stores the new job.
INSERT INTO outlast_events (job, at, kind, token, detail)
SELECT e.job, :now, 'retried', e.token, :id
FROM outlast_ends AS e
WHERE e.job = :retry_of;
