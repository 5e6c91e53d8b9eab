-- @identities
-- The immutable columns of jobs, and what must be locked before they are read.
SELECT
  j.id, j.seq, j.type, j.name, j.queue, j.created_at, j.member_group_id,
  j.active_key IS NOT NULL,
  coalesce(j.root, j.id),
  CASE
    WHEN j.root IS NULL THEN j.seq
    ELSE (SELECT r.seq FROM outlast.jobs AS r WHERE r.id = j.root)
  END,
  coalesce(q.ordering = 'position', false),
  q.concurrency IS NOT NULL,
  EXISTS (SELECT 1 FROM outlast.reservations AS r WHERE r.job = j.id AND r.status = 'active'),
  g.mode, g.on_failure
FROM unnest(:jobs::uuid[]) AS c (job)
JOIN outlast.jobs AS j ON j.id = c.job
LEFT JOIN outlast.queues AS q ON q.name = j.queue
LEFT JOIN outlast.groups AS g ON g.id = j.member_group_id;

-- @lock_open
SELECT
  job, token, priority, position, available_at, failures, losses, run_id, cancel,
  lease_until <= :mono::bigint
FROM outlast.open_runs
WHERE job = ANY(:jobs::uuid[])
ORDER BY job
FOR UPDATE;

-- @lock_waiting
SELECT job, token, priority, position, available_at, failures, losses, state
FROM outlast.waiting
WHERE job = ANY(:jobs::uuid[])
ORDER BY job
FOR UPDATE;

-- @lock_ended
SELECT job, token, priority, position, available_at, failures, losses, state
FROM outlast.ends
WHERE job = ANY(:jobs::uuid[])
ORDER BY job
FOR UPDATE;

-- @lock_jobs
SELECT id FROM outlast.jobs WHERE id = ANY(:jobs::uuid[]) ORDER BY id FOR UPDATE;

-- @lock_expired_reservations
-- Active reservations that were not extended in time.
SELECT job
FROM outlast.reservations
WHERE job = ANY(:jobs::uuid[]) AND status = 'active' AND until <= :mono::bigint
ORDER BY seq
FOR UPDATE;

-- @successors_of
-- Jobs with a successor, and whether it is in the same group.
SELECT s.retry_of, s.member_group_id IS NOT DISTINCT FROM j.member_group_id
FROM outlast.jobs AS s
JOIN outlast.jobs AS j ON j.id = s.retry_of
WHERE s.retry_of = ANY(:jobs::uuid[]);

-- @detached
-- Jobs in no state table, with the token and id of their last run, and the position after the last
-- one of their queue, because their own is lost.
SELECT
  j.id,
  coalesce(r.token, 0),
  r.run_id,
  coalesce(
    (
      SELECT q.gap + greatest(0, (
        SELECT max(o.position) FROM outlast.waiting AS o
        WHERE o.queue = j.queue AND o.priority = 0 AND o.position <> 0
      ))
      FROM outlast.queues AS q
      WHERE q.name = j.queue AND q.ordering = 'position'
    ),
    0
  )
FROM outlast.jobs AS j
LEFT JOIN LATERAL (
  SELECT r.token, r.run_id FROM outlast.runs AS r
  WHERE r.job = j.id
  ORDER BY r.token DESC
  LIMIT 1
) AS r ON true
WHERE j.id = ANY(:jobs::uuid[])
  AND (SELECT 1 FROM outlast.waiting AS w WHERE w.job = j.id) IS NULL
  AND (SELECT 1 FROM outlast.open_runs AS o WHERE o.job = j.id) IS NULL
  AND (SELECT 1 FROM outlast.ends AS e WHERE e.job = j.id) IS NULL;

-- @close
-- Looked up by key and deleted by ctid, as in `finish.plain`; the rows are locked, so their ctid
-- does not change.
WITH asked AS MATERIALIZED (
  SELECT c.*, l.place
  FROM unnest(
    :jobs::uuid[], :statuses::text[], :reasons::text[], :errors::text[], :results::text[],
    :exit_codes::bigint[], :log_paths::text[], :artifacts::text[]
  ) AS c (job, status, reason, error, result, exit_code, log_path, artifacts)
  CROSS JOIN LATERAL (
    SELECT r.ctid AS place FROM outlast.open_runs AS r WHERE r.job = c.job OFFSET 0
  ) AS l
),
closed AS (
  DELETE FROM outlast.open_runs AS o
  USING asked AS c
  WHERE o.ctid = c.place
  RETURNING o.job, o.token, o.run_id, o.worker, o.started_at, o.progress, o.artifacts AS had,
    c.status, c.reason, c.error, c.result, c.exit_code, c.log_path, c.artifacts
)
INSERT INTO outlast.runs (
  job, token, run_id, status, reason, worker, started_at, finished_at, error, result,
  exit_code, log_path, artifacts, progress
)
SELECT
  c.job, c.token, c.run_id, c.status, c.reason,
  coalesce((SELECT k.id FROM outlast.workers AS k WHERE k.id = c.worker), 0),
  c.started_at, :now::bigint, c.error, c.result::json, c.exit_code, c.log_path,
  CASE
    WHEN c.artifacts IS NULL THEN c.had
    WHEN c.had IS NULL THEN c.artifacts::json
    ELSE (left(c.had::text, -1) || ',' || substr(c.artifacts, 2))::json
  END,
  c.progress
FROM closed AS c;

-- @close_missing
-- A run of the unknown worker (0) that starts and ends now.
INSERT INTO outlast.runs (
  job, token, run_id, status, reason, worker, started_at, finished_at, error
)
SELECT c.job, c.token, c.run_id, c.status, c.reason, 0, :now::bigint, :now::bigint, c.error
FROM unnest(
  :jobs::uuid[], :tokens::integer[], :run_ids::uuid[], :statuses::text[], :reasons::text[],
  :errors::text[]
) AS c (job, token, run_id, status, reason, error);

-- @requeue
-- Without a start deadline: the job has started in time.
INSERT INTO outlast.waiting (
  job, seq, state, queue, type, name, delivery, priority, position, available_at, created_at,
  token, failures, losses, member_group_id, active
)
SELECT
  j.id, j.seq, c.state, j.queue, j.type, j.name, j.delivery, c.priority, c.position,
  c.available_at, j.created_at, c.token, c.failures, c.losses, j.member_group_id,
  j.active_key IS NOT NULL
FROM unnest(
  :jobs::uuid[], :states::text[], :priorities::smallint[], :positions::bigint[],
  :available::bigint[], :tokens::integer[], :failures::integer[], :losses::integer[]
) AS c (job, state, priority, position, available_at, token, failures, losses)
JOIN outlast.jobs AS j ON j.id = c.job;

-- @add_successors
INSERT INTO outlast.jobs (
  id, type, name, params, queue, delivery, max_attempts, created_at, slot_at,
  retry_of, root, group_id, member_group_id, template_id, template_at, schedule_id, active_key,
  metadata
)
SELECT
  c.successor, j.type, j.name, j.params, j.queue, j.delivery, j.max_attempts, :now::bigint,
  j.slot_at, j.id, coalesce(j.root, j.id), j.group_id, j.member_group_id, j.template_id,
  j.template_at, j.schedule_id, j.active_key, j.metadata
FROM unnest(:jobs::uuid[], :successors::uuid[]) WITH ORDINALITY AS c (job, successor, n)
JOIN outlast.jobs AS j ON j.id = c.job
ORDER BY c.n;

-- @queue_successors
-- In a `position` queue, whose lock is held, each goes after the last waiting job of its priority.
INSERT INTO outlast.waiting (
  job, seq, state, queue, type, name, delivery, priority, position, available_at, created_at,
  token, failures, losses, member_group_id, active
)
SELECT
  s.id, s.seq, CASE WHEN c.delay > 0 THEN 'scheduled' ELSE 'queued' END, s.queue, s.type, s.name,
  s.delivery, c.priority,
  coalesce(
    greatest(0, (
      SELECT max(o.position) FROM outlast.waiting AS o
      WHERE o.queue = s.queue AND o.priority = c.priority AND o.position <> 0
    )) + q.gap * row_number() OVER (PARTITION BY s.queue, c.priority ORDER BY c.n),
    0
  ),
  :now::bigint + c.delay, s.created_at, 0, c.failures, c.losses, s.member_group_id,
  s.active_key IS NOT NULL
FROM unnest(
  :successors::uuid[], :delays::bigint[], :priorities::smallint[], :failures::integer[],
  :losses::integer[]
) WITH ORDINALITY AS c (successor, delay, priority, failures, losses, n)
JOIN outlast.jobs AS s ON s.id = c.successor
LEFT JOIN outlast.queues AS q ON q.name = s.queue AND q.ordering = 'position';

-- @mark_cancel
UPDATE outlast.open_runs SET cancel = true WHERE job = ANY(:jobs::uuid[]);

-- @move
UPDATE outlast.waiting
SET state = (:states::text[])[array_position(:jobs::uuid[], job)]
WHERE job = ANY(:jobs::uuid[]);

-- @drop_waiting
DELETE FROM outlast.waiting WHERE job = ANY(:jobs::uuid[]);

-- @end
INSERT INTO outlast.ends (
  job, seq, state, reason, at, queue, priority, position, available_at, token, failures, losses
)
SELECT
  c.job, c.seq, c.state, c.reason, :now::bigint, c.queue, c.priority, c.position, c.available_at,
  c.token, c.failures, c.losses
FROM unnest(
  :jobs::uuid[], :seqs::bigint[], :states::text[], :reasons::text[], :queues::text[],
  :priorities::smallint[], :positions::bigint[], :available::bigint[], :tokens::integer[],
  :failures::integer[], :losses::integer[]
) AS c (
  job, seq, state, reason, queue, priority, position, available_at, token, failures, losses
);

-- @dead_letter
-- The one change of a final state: recovery marks a failed linked job as dead letter.
UPDATE outlast.ends AS e
SET state = c.state, reason = c.reason
FROM unnest(:jobs::uuid[], :states::text[], :reasons::text[]) AS c (job, state, reason)
WHERE e.job = c.job;

-- @free_keys
DELETE FROM outlast.keys WHERE scope = 'active' AND job = ANY(:roots::uuid[]);

-- @record_events
INSERT INTO outlast.events (job, at, kind, token, run_id, reason, detail)
SELECT c.job, :now::bigint, c.kind, c.token, c.run_id, c.reason, c.detail
FROM unnest(
  :jobs::uuid[], :kinds::text[], :tokens::integer[], :run_ids::uuid[], :reasons::text[],
  :details::text[]
) WITH ORDINALITY AS c (job, kind, token, run_id, reason, detail, n)
ORDER BY c.n;

-- @recorded
-- The changes that are on record exactly as requested: an end of a run, or an end without one.
SELECT c.n
FROM unnest(
  :jobs::uuid[], :tokens::integer[], :runs::text[], :states::text[], :reasons::text[],
  :errors::text[], :results::text[], :exit_codes::bigint[], :log_paths::text[],
  :successors::uuid[]
) WITH ORDINALITY AS c (
  job, token, run, state, reason, error, result, exit_code, log_path, successor, n
)
LEFT JOIN outlast.runs AS r ON r.job = c.job AND r.token = c.token
LEFT JOIN outlast.ends AS e ON e.job = c.job AND e.token = c.token
WHERE c.run IS NULL AND e.state = c.state
  OR (
    r.status = c.run
    AND r.reason IS NOT DISTINCT FROM c.reason
    AND r.error IS NOT DISTINCT FROM c.error
    AND r.result::text IS NOT DISTINCT FROM c.result
    AND r.exit_code IS NOT DISTINCT FROM c.exit_code
    AND r.log_path IS NOT DISTINCT FROM c.log_path
    AND (
      c.successor IS NULL
      OR NOT EXISTS (
        SELECT 1 FROM outlast.jobs AS s WHERE s.retry_of = c.job AND s.id <> c.successor
      )
    )
  );
