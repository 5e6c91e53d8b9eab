-- @active
SELECT id, queue, job_id, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM outlast_reservations
WHERE queue = :queue AND status = 'active';

-- @set_position
-- Before all others of its priority, and before those without a position.
UPDATE outlast_waiting
SET position = min(
  0,
  coalesce(
    (
      SELECT min(o.position) FROM outlast_waiting AS o
      WHERE o.queue = :queue AND o.priority = :priority AND o.position <> 0
    ),
    0
  )
) - coalesce((SELECT gap FROM outlast_queues WHERE name = :queue), :gap)
WHERE job = (SELECT seq FROM outlast_jobs WHERE id = :job_id);

-- @add
INSERT INTO outlast_reservations (
  id, queue, job_id, caller, request, reserved_at, expires_at, span, until
)
VALUES (:id, :queue, :job_id, :caller, :request, :now, :now + :span, :span, :mono + :span);

-- @extend
UPDATE outlast_reservations
SET span = :span, until = :mono + :span, expires_at = :now + :span
WHERE id = :id AND status = 'active';

-- @renew
-- Where nobody holds a queue there is nothing to go through, and the leases are not looked at.
UPDATE outlast_reservations INDEXED BY outlast_reservations_active
SET until = :mono + span, expires_at = :now + span
WHERE status = 'active'
  AND job_id IN (
    SELECT j.id
    FROM json_each(:leases) AS l
    CROSS JOIN outlast_jobs AS j ON j.id = l.value ->> 0
    CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = l.value ->> 1
  );

-- @use
-- The claim of its job takes the next place, and no more.
UPDATE outlast_reservations
SET status = 'released', ended_at = :now
WHERE queue = :queue AND status = 'active';

-- @finish
UPDATE outlast_reservations INDEXED BY outlast_reservations_active
SET status = 'released', ended_at = :now
WHERE status = 'active'
  AND job_id IN (
    SELECT j.id
    FROM temp.outlast_finished AS f
    CROSS JOIN outlast_jobs AS j ON j.seq = f.job
  )
RETURNING queue;

-- @end
UPDATE outlast_reservations INDEXED BY outlast_reservations_active
SET
  status = c.ending,
  reason = CASE WHEN c.ending = 'expired' THEN c.end_reason END,
  ended_at = :now
FROM (
  SELECT
    j.id,
    c.end_reason,
    CASE
      WHEN c.run_status = 'lost' OR c.kind = 'abandoned' THEN 'expired'
      ELSE 'released'
    END AS ending
  FROM temp.outlast_changes AS c
  CROSS JOIN outlast_jobs AS j ON j.seq = c.job
  WHERE c.accepted
    AND c.to_state IN ('succeeded', 'failed', 'dead_letter', 'skipped', 'cancelled')
) AS c
WHERE outlast_reservations.status = 'active' AND outlast_reservations.job_id = c.id
RETURNING queue;

-- @release_stale
UPDATE outlast_reservations
SET status = 'expired', reason = f.reason, ended_at = :now
FROM (
  SELECT r.seq, CASE WHEN w.job IS NULL THEN :over ELSE :back END AS reason
  FROM outlast_reservations AS r INDEXED BY outlast_reservations_active
  LEFT JOIN outlast_jobs AS j ON j.id = r.job_id
  LEFT JOIN outlast_ends AS e ON e.job = j.seq
  LEFT JOIN outlast_waiting AS w ON w.job = j.seq
  WHERE r.status = 'active'
    AND (j.seq IS NULL OR e.job IS NOT NULL OR (w.token > 0 AND r.until <= :mono))
  ORDER BY r.seq
  LIMIT :limit
) AS f
WHERE outlast_reservations.seq = f.seq
RETURNING id, queue, job_id, caller, request, status, reason, reserved_at, expires_at, ended_at;

-- @prune
DELETE FROM outlast_reservations
WHERE status <> 'active'
  AND job_id IN (
    SELECT id FROM outlast_jobs
    WHERE seq IN (SELECT job FROM temp.outlast_selected)
      OR root IN (SELECT job FROM temp.outlast_selected)
  );

-- @get
SELECT id, queue, job_id, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM outlast_reservations
WHERE id = :id;

-- @latest
SELECT id, queue, job_id, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM outlast_reservations
ORDER BY seq DESC
LIMIT :limit;

-- @all_active
SELECT id, queue, job_id, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM outlast_reservations INDEXED BY outlast_reservations_active
WHERE status = 'active'
ORDER BY seq DESC
LIMIT :limit;

-- @expired
SELECT id, queue, job_id, caller, request, status, reason, reserved_at, expires_at, ended_at
FROM outlast_reservations INDEXED BY outlast_reservations_active
WHERE status = 'active' AND until <= :mono
ORDER BY until, seq
LIMIT :limit;
