-- @active
SELECT id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM outlast.reservations
WHERE queue = :queue::text AND status = 'active';

-- @move_to_front
-- Before all other jobs of its priority, with or without a position.
UPDATE outlast.waiting
SET position = least(
  0,
  (
    SELECT min(o.position)
    FROM outlast.waiting AS o
    WHERE o.queue = :queue::text AND o.priority = :priority::smallint AND o.position <> 0
  )
) - coalesce((SELECT q.gap FROM outlast.queues AS q WHERE q.name = :queue::text), :gap::integer)
WHERE job = :job::uuid;

-- @add
INSERT INTO outlast.reservations (
  id, queue, job, caller, request, reserved_at, expires_at, span, until
)
VALUES (
  :id::uuid, :queue::text, :job::uuid, :caller::text, :request::text, :now::bigint,
  :now::bigint + :span::bigint, :span::bigint, :mono::bigint + :span::bigint
)
RETURNING id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at;

-- @extend
UPDATE outlast.reservations
SET span = :span::bigint, until = :mono::bigint + :span::bigint,
  expires_at = :now::bigint + :span::bigint
WHERE id = :id::uuid AND status = 'active';

-- @release_claimed
-- Releases the reservation of a queue whose job was claimed.
UPDATE outlast.reservations
SET status = 'released', ended_at = :now::bigint
WHERE queue = :queue::text AND status = 'active';

-- @end
UPDATE outlast.reservations AS r
SET
  status = e.status,
  reason = CASE WHEN e.status = 'expired' THEN e.reason END,
  ended_at = :now::bigint
FROM unnest(:jobs::uuid[], :statuses::text[], :reasons::text[]) AS e (job, status, reason)
WHERE r.job = e.job AND r.status = 'active'
RETURNING r.queue;

-- @stale_queues
-- Queues of active reservations without a purpose: the job ended or is gone, or it was claimed,
-- waits again, and the reservation was not extended in time.
SELECT r.queue
FROM (SELECT * FROM outlast.reservations AS a WHERE a.status = 'active' OFFSET 0) AS r
WHERE (SELECT 1 FROM outlast.jobs AS j WHERE j.id = r.job) IS NULL
  OR (SELECT 1 FROM outlast.ends AS e WHERE e.job = r.job) IS NOT NULL
  OR (SELECT w.token FROM outlast.waiting AS w WHERE w.job = r.job) > 0
  AND r.until <= (SELECT coalesce(:mono::bigint, outlast.micros()))
ORDER BY r.seq
LIMIT :limit::bigint;

-- @release_stale
UPDATE outlast.reservations AS r
SET
  status = 'expired',
  reason = CASE
    WHEN (SELECT 1 FROM outlast.waiting AS w WHERE w.job = r.job) IS NULL THEN :over::text
    ELSE :back::text
  END,
  ended_at = :now::bigint
WHERE r.status = 'active' AND r.queue = ANY(:queues::text[])
  AND (
    (SELECT 1 FROM outlast.jobs AS j WHERE j.id = r.job) IS NULL
    OR (SELECT 1 FROM outlast.ends AS e WHERE e.job = r.job) IS NOT NULL
    OR (SELECT w.token FROM outlast.waiting AS w WHERE w.job = r.job) > 0
    AND r.until <= :mono::bigint
  )
RETURNING id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at;

-- @get
SELECT id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM outlast.reservations
WHERE id = :id::uuid;

-- @latest
SELECT id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM outlast.reservations
ORDER BY seq DESC
LIMIT :limit::bigint;

-- @all_active
-- OFFSET 0 forces the partial index of active reservations: there may be many ended ones.
SELECT id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM (SELECT * FROM outlast.reservations AS a WHERE a.status = 'active' OFFSET 0) AS r
ORDER BY seq DESC
LIMIT :limit::bigint;

-- @expired
SELECT id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM outlast.reservations
WHERE status = 'active' AND until <= (SELECT coalesce(:mono::bigint, outlast.micros()))
ORDER BY until, seq
LIMIT :limit::bigint;
