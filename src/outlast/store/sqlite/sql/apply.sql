-- @clear
DELETE FROM temp.outlast_changes;

-- @load
INSERT INTO temp.outlast_changes (
  n, job, token, guard, to_state, run_status, result, kind, reason, end_reason, error, delay,
  failures, losses, yields_to_cancel, successor, successor_delay, artifacts, expected_state,
  exit_code, log_path, run_id, detail, member_of
)
SELECT
  c.key, j.seq, c.value ->> 1, c.value ->> 2, c.value ->> 3, c.value ->> 4, c.value ->> 5,
  c.value ->> 6, c.value ->> 7, c.value ->> 7, c.value ->> 8, coalesce(c.value ->> 9, 0),
  c.value ->> 10, c.value ->> 11, coalesce(c.value ->> 12, 0), c.value ->> 13, c.value ->> 14,
  c.value ->> 15, c.value ->> 16, c.value ->> 17, c.value ->> 18, c.value ->> 19,
  c.value ->> 20, j.member_of
FROM json_each(:changes) AS c
LEFT JOIN outlast_jobs AS j ON j.id = c.value ->> 0;

-- @check_open
-- The fence: the open run must have exactly this token. A cancel request that the decision did
-- not see ends a job that would continue, as the change provides (`yields_to_cancel`).
UPDATE temp.outlast_changes AS c
SET
  accepted = 1,
  queue = o.queue,
  priority = o.priority,
  position = o.position,
  available_at = o.available_at,
  failures = coalesce(c.failures, o.failures),
  losses = coalesce(c.losses, o.losses),
  to_state = CASE WHEN c.yields_to_cancel AND o.cancel THEN 'cancelled' ELSE c.to_state END,
  kind = CASE WHEN c.yields_to_cancel AND o.cancel THEN 'cancelled' ELSE c.kind END,
  end_reason = CASE WHEN c.yields_to_cancel AND o.cancel THEN 'cancel_requested' ELSE c.reason END,
  successor = CASE WHEN c.yields_to_cancel AND o.cancel THEN NULL ELSE c.successor END
FROM outlast_open_runs AS o
WHERE c.guard IN ('open', 'lapsed') AND o.job = c.job AND o.token = c.token
  AND (c.guard = 'open' OR o.lease_until <= :mono);

-- @check_waiting
UPDATE temp.outlast_changes AS c
SET
  accepted = 1,
  queue = w.queue,
  priority = w.priority,
  position = w.position,
  available_at = w.available_at,
  failures = w.failures,
  losses = w.losses,
  state_before = w.state
FROM outlast_waiting AS w
WHERE c.guard IN ('waiting', 'state') AND w.job = c.job AND w.token = c.token
  AND (c.guard = 'waiting' OR w.state = c.expected_state);

-- @check_reservation_expired
-- The job waits and its reservation has expired.
UPDATE temp.outlast_changes AS c
SET
  accepted = 1,
  queue = w.queue,
  priority = w.priority,
  position = w.position,
  available_at = w.available_at,
  failures = w.failures,
  losses = w.losses
FROM outlast_waiting AS w
WHERE c.guard = 'silent' AND w.job = c.job AND w.token = c.token
  AND EXISTS (
    SELECT 1
    FROM outlast_jobs AS j
    CROSS JOIN outlast_reservations AS r ON r.job_id = j.id
    WHERE j.seq = c.job AND r.status = 'active' AND r.until <= :mono
  );

-- @check_ended
-- A failed link of a chain may become a dead letter, or get its missing successor.
UPDATE temp.outlast_changes AS c
SET
  accepted = 1,
  guard = 'ended',
  priority = e.priority,
  failures = e.failures,
  losses = e.losses
FROM outlast_ends AS e
WHERE c.guard = 'state' AND c.expected_state = 'failed'
  AND e.job = c.job AND e.token = c.token AND e.state = c.expected_state
  AND (
    c.to_state = 'dead_letter'
    OR c.to_state = 'failed' AND c.successor IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS s WHERE s.retry_of = c.job)
  );

-- @check_detached
-- The job is in no state table and had no run since the decision. Its position is lost: it goes
-- behind the others. It keeps a successor that it has.
UPDATE temp.outlast_changes AS c
SET
  accepted = 1,
  queue = j.queue,
  priority = 0,
  position = coalesce(
    (
      SELECT q.gap + max(
        0,
        coalesce(
          (
            SELECT max(o.position) FROM outlast_waiting AS o INDEXED BY outlast_waiting_position
            WHERE o.queue = j.queue AND o.priority = 0 AND o.position <> 0
          ),
          0
        )
      )
      FROM outlast_queues AS q
      WHERE q.name = j.queue AND q.ordering = 'position'
    ),
    0
  ),
  available_at = :now,
  successor = CASE
    WHEN EXISTS (SELECT 1 FROM outlast_jobs AS s WHERE s.retry_of = c.job) THEN NULL
    ELSE c.successor
  END
FROM outlast_jobs AS j
WHERE c.guard = 'adrift' AND j.seq = c.job
  AND NOT EXISTS (SELECT 1 FROM outlast_waiting AS w WHERE w.job = c.job)
  AND NOT EXISTS (SELECT 1 FROM outlast_open_runs AS o WHERE o.job = c.job)
  AND NOT EXISTS (SELECT 1 FROM outlast_ends AS e WHERE e.job = c.job)
  AND c.token = coalesce((SELECT max(r.token) FROM outlast_runs AS r WHERE r.job = c.job), 0);

-- @raise_token
-- The claim whose run is missing raised it.
UPDATE temp.outlast_changes SET token = token + 1 WHERE accepted AND run_id IS NOT NULL;

-- @close_missing
-- The unknown worker (0) holds the run, which ends when it begins.
INSERT INTO outlast_runs (
  job, token, run_id, status, reason, worker, started_at, finished_at, error
)
SELECT c.job, c.token, c.run_id, c.run_status, c.reason, 0, :now, :now, c.error
FROM temp.outlast_changes AS c
WHERE c.accepted AND c.run_id IS NOT NULL;

-- @close
INSERT INTO outlast_runs (
  job, token, run_id, status, reason, worker, started_at, finished_at, error, result,
  progress, exit_code, log_path, artifacts
)
SELECT
  o.job, o.token, o.run_id, c.run_status, c.reason, coalesce(k.id, 0), o.started_at, :now,
  c.error, c.result, o.progress, c.exit_code, c.log_path,
  CASE
    WHEN c.artifacts IS NULL THEN o.artifacts
    ELSE (
      SELECT json_group_array(value)
      FROM (SELECT value FROM json_each(o.artifacts) UNION ALL SELECT value FROM json_each(c.artifacts))
    )
  END
FROM temp.outlast_changes AS c
CROSS JOIN outlast_open_runs AS o ON o.job = c.job
LEFT JOIN outlast_workers AS k ON k.id = o.worker
WHERE c.accepted AND c.run_status IS NOT NULL;

-- @drop_open
DELETE FROM outlast_open_runs
WHERE job IN (SELECT job FROM temp.outlast_changes WHERE accepted AND run_status IS NOT NULL);

-- @put_back
-- Without its start deadline, because the job has started in time.
INSERT INTO outlast_waiting (
  job, state, queue, type, name, delivery, priority, position,
  available_at, created_at, token, failures, losses, member_of
)
SELECT
  j.seq, c.to_state, j.queue, j.type, j.name, j.delivery, c.priority, c.position,
  CASE WHEN c.to_state = 'queued' AND c.delay = 0 THEN c.available_at ELSE :now + c.delay END,
  j.created_at, c.token, c.failures, c.losses, j.member_of
FROM temp.outlast_changes AS c
CROSS JOIN outlast_jobs AS j ON j.seq = c.job
WHERE c.accepted AND (c.run_status IS NOT NULL OR c.guard = 'adrift')
  AND c.to_state IN ('queued', 'retry_wait');

-- @successors
INSERT INTO outlast_jobs (
  id, type, name, params, queue, delivery, max_attempts, created_at, slot_at,
  retry_of, root, group_id, member_of, template_id, template_at, schedule_id,
  active_key, metadata
)
SELECT
  c.successor, j.type, j.name, j.params, j.queue, j.delivery, j.max_attempts, :now, j.slot_at,
  j.seq, coalesce(j.root, j.seq), j.group_id, j.member_of, j.template_id, j.template_at,
  j.schedule_id, j.active_key, j.metadata
FROM temp.outlast_changes AS c
CROSS JOIN outlast_jobs AS j ON j.seq = c.job
WHERE c.accepted AND c.successor IS NOT NULL
ORDER BY c.n;

-- @queue_successors
INSERT INTO outlast_waiting (
  job, state, queue, type, name, delivery, priority, position,
  available_at, created_at, token, failures, losses, member_of
)
SELECT
  s.seq, CASE WHEN c.successor_delay > 0 THEN 'scheduled' ELSE 'queued' END,
  s.queue, s.type, s.name, s.delivery, c.priority, 0,
  :now + c.successor_delay, :now, 0, c.failures, c.losses, s.member_of
FROM temp.outlast_changes AS c
CROSS JOIN outlast_jobs AS s ON s.id = c.successor
WHERE c.accepted AND c.successor IS NOT NULL
ORDER BY c.n;

-- @mark_cancel
UPDATE outlast_open_runs
SET cancel = 1
WHERE job IN (SELECT job FROM temp.outlast_changes WHERE accepted AND to_state = 'running');

-- @set_state
UPDATE outlast_waiting
SET state = c.to_state
FROM temp.outlast_changes AS c
WHERE c.accepted AND c.run_status IS NULL AND c.to_state IN ('blocked', 'scheduled', 'queued')
  AND outlast_waiting.job = c.job;

-- @drop_waiting
DELETE FROM outlast_waiting
WHERE job IN (
  SELECT job FROM temp.outlast_changes
  WHERE accepted AND run_status IS NULL
    AND to_state IN ('succeeded', 'failed', 'dead_letter', 'skipped', 'cancelled')
);

-- @end
INSERT INTO outlast_ends (
  job, state, reason, at, queue, priority, position, available_at, token, failures, losses
)
SELECT
  c.job, c.to_state, c.end_reason, :now, c.queue, c.priority, c.position, c.available_at,
  c.token, c.failures, c.losses
FROM temp.outlast_changes AS c
WHERE c.accepted AND c.guard <> 'ended'
  AND c.to_state IN ('succeeded', 'failed', 'dead_letter', 'skipped', 'cancelled');

-- @declare_dead
-- The only change of an ended job: recovery declares a failed linked job dead.
UPDATE outlast_ends
SET state = c.to_state, reason = c.end_reason
FROM temp.outlast_changes AS c
WHERE c.accepted AND c.guard = 'ended' AND c.to_state = 'dead_letter' AND outlast_ends.job = c.job;

-- @free_keys
DELETE FROM outlast_keys
WHERE scope = 'active'
  AND job_id IN (
    SELECT coalesce(r.id, j.id)
    FROM temp.outlast_changes AS c
    CROSS JOIN outlast_jobs AS j ON j.seq = c.job
    LEFT JOIN outlast_jobs AS r ON r.seq = j.root
    WHERE c.accepted AND c.successor IS NULL
      AND (
        c.guard NOT IN ('ended', 'adrift')
        OR NOT EXISTS (SELECT 1 FROM outlast_jobs AS s WHERE s.retry_of = c.job)
      )
      AND c.to_state IN ('succeeded', 'failed', 'dead_letter', 'skipped', 'cancelled')
  );

-- @events
-- The error of a failed run is in its record; any other error is the detail of the event, unless
-- the change has another.
INSERT INTO outlast_events (job, at, kind, token, run_id, reason, detail)
SELECT
  c.job, :now, CASE WHEN c.accepted THEN c.kind ELSE 'late_write_refused' END, c.token,
  CASE WHEN c.accepted THEN coalesce(r.run_id, o.run_id) END,
  CASE WHEN c.accepted THEN c.end_reason ELSE c.to_state END,
  CASE
    WHEN c.accepted
    THEN coalesce(c.detail, CASE WHEN c.run_status IS NOT 'failed' THEN c.error END)
  END
FROM temp.outlast_changes AS c
LEFT JOIN outlast_runs AS r
  ON r.job = c.job AND r.token = c.token AND (c.run_status IS NOT NULL OR c.guard = 'adrift')
LEFT JOIN outlast_open_runs AS o ON o.job = c.job AND c.to_state = 'running'
WHERE c.job IS NOT NULL
  AND (c.accepted AND c.kind IS NOT NULL OR NOT c.accepted AND NOT c.on_record AND c.guard = 'open')
ORDER BY c.n;

-- @grouped
-- Ends of members that may advance their group. A link with a successor is not an end.
SELECT c.job, c.token, coalesce(j.root, j.seq), g.seq, g.mode, g.on_failure, c.to_state,
  c.state_before IS 'blocked'
FROM temp.outlast_changes AS c
CROSS JOIN outlast_groups AS g ON g.seq = c.member_of
CROSS JOIN outlast_jobs AS j ON j.seq = c.job
WHERE c.accepted AND c.successor IS NULL
  AND c.to_state IN ('succeeded', 'failed', 'dead_letter', 'skipped', 'cancelled')
  AND g.closing IS NULL
  AND (g.mode = 'sequential' OR c.to_state NOT IN ('succeeded', 'skipped'))
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS s WHERE s.retry_of = c.job AND +s.member_of = c.member_of)
ORDER BY c.n;

-- @check_recorded
-- Refused ends that are on record exactly as asked: they were written before.
UPDATE temp.outlast_changes AS c
SET on_record = 1
FROM outlast_runs AS r
WHERE NOT c.accepted AND c.guard = 'open' AND r.job = c.job AND r.token = c.token
  AND r.status = c.run_status AND r.reason IS c.reason AND r.error IS c.error
  AND r.result IS c.result AND r.exit_code IS c.exit_code AND r.log_path IS c.log_path
  AND (
    c.successor IS NULL
    OR NOT EXISTS (SELECT 1 FROM outlast_jobs AS s WHERE s.retry_of = c.job AND s.id <> c.successor)
  );

-- @accepted
SELECT json_group_array(n) FROM temp.outlast_changes WHERE accepted;

-- @on_record
SELECT json_group_array(n) FROM temp.outlast_changes WHERE on_record;

-- @limited
-- Queues with a concurrency limit that has capacity again.
SELECT json_group_array(q.name)
FROM outlast_queues AS q INDEXED BY outlast_queues_limited
WHERE q.concurrency IS NOT NULL
  AND q.name IN (
    SELECT queue FROM temp.outlast_changes WHERE accepted AND run_status IS NOT NULL
  );
