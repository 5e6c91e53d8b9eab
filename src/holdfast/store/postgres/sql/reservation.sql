-- @active
SELECT id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM holdfast.reservations
WHERE queue = :queue::text AND status = 'active';

-- @place
-- Before all others of its priority, and before those without a position.
UPDATE holdfast.waiting
SET position = least(
  0,
  (
    SELECT min(o.position)
    FROM holdfast.waiting AS o
    WHERE o.queue = :queue::text AND o.priority = :priority::smallint AND o.position <> 0
  )
) - coalesce((SELECT q.gap FROM holdfast.queues AS q WHERE q.name = :queue::text), :gap::integer)
WHERE job = :job::uuid;

-- @add
INSERT INTO holdfast.reservations (
  id, queue, job, caller, request, reserved_at, expires_at, span, until
)
VALUES (
  :id::uuid, :queue::text, :job::uuid, :caller::text, :request::text, :now::bigint,
  :now::bigint + :span::bigint, :span::bigint, :mono::bigint + :span::bigint
)
RETURNING id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at;

-- @keep
UPDATE holdfast.reservations
SET span = :span::bigint, until = :mono::bigint + :span::bigint,
  expires_at = :now::bigint + :span::bigint
WHERE id = :id::uuid AND status = 'active';

-- @use
-- The claim of its job takes the next place, and no more.
UPDATE holdfast.reservations
SET status = 'released', ended_at = :now::bigint
WHERE queue = :queue::text AND status = 'active';

-- @end
UPDATE holdfast.reservations AS r
SET
  status = e.status,
  reason = CASE WHEN e.status = 'expired' THEN e.reason END,
  ended_at = :now::bigint
FROM unnest(:jobs::uuid[], :statuses::text[], :reasons::text[]) AS e (job, status, reason)
WHERE r.job = e.job AND r.status = 'active'
RETURNING r.queue;

-- @freeable
-- Active ones that hold a queue for nothing: their job has ended, or is gone; or was taken, waits
-- again, and nobody has renewed them in time.
SELECT r.queue
FROM holdfast.reservations AS r
LEFT JOIN holdfast.jobs AS j ON j.id = r.job
LEFT JOIN holdfast.ends AS e ON e.job = r.job
LEFT JOIN holdfast.waiting AS w ON w.job = r.job
WHERE r.status = 'active'
  AND (
    j.id IS NULL OR e.job IS NOT NULL
    OR w.token > 0 AND r.until <= (SELECT coalesce(:mono::bigint, holdfast.micros()))
  )
ORDER BY r.seq
LIMIT :limit::bigint;

-- @free
UPDATE holdfast.reservations AS r
SET status = 'expired', reason = f.reason, ended_at = :now::bigint
FROM (
  SELECT h.id, CASE WHEN w.job IS NULL THEN :over::text ELSE :back::text END AS reason
  FROM holdfast.reservations AS h
  LEFT JOIN holdfast.jobs AS j ON j.id = h.job
  LEFT JOIN holdfast.ends AS e ON e.job = h.job
  LEFT JOIN holdfast.waiting AS w ON w.job = h.job
  WHERE h.status = 'active' AND h.queue = ANY(:queues::text[])
    AND (j.id IS NULL OR e.job IS NOT NULL OR w.token > 0 AND h.until <= :mono::bigint)
) AS f
WHERE r.id = f.id AND r.status = 'active' AND (f.reason = :over::text OR r.until <= :mono::bigint)
RETURNING
  r.id, r.queue, r.job, r.caller, r.request, r.status, r.reason, r.reserved_at, r.expires_at,
  r.ended_at;

-- @get
SELECT id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM holdfast.reservations
WHERE id = :id::uuid;

-- @latest
SELECT id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM holdfast.reservations
ORDER BY seq DESC
LIMIT :limit::bigint;

-- @held
SELECT id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM holdfast.reservations
WHERE status = 'active'
ORDER BY seq DESC
LIMIT :limit::bigint;

-- @lapsed
SELECT id, queue, job, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM holdfast.reservations
WHERE status = 'active' AND until <= (SELECT coalesce(:mono::bigint, holdfast.micros()))
ORDER BY until, seq
LIMIT :limit::bigint;
