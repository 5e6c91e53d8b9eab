-- @list
SELECT
  instance_id, boot_id, info, started_at, seen_at, stopped_at,
  stopped_at IS NULL AND alive_until > :mono
FROM outlast_workers
WHERE started_at IS NOT NULL
ORDER BY started_at, instance_id, boot_id;

-- @register
-- A claim of an earlier moment may have left a row already.
INSERT INTO outlast_workers (instance_id, boot_id, started_at, seen_at, alive_until, info)
VALUES (:instance, :boot, :now, :now, -1, :info)
ON CONFLICT (instance_id, boot_id) DO UPDATE SET
  started_at = excluded.started_at,
  seen_at = excluded.seen_at,
  stopped_at = NULL,
  alive_until = excluded.alive_until,
  info = excluded.info;

-- @heartbeat
UPDATE outlast_workers
SET seen_at = :now, alive_until = :until
WHERE instance_id = :instance AND boot_id = :boot
  AND started_at IS NOT NULL AND stopped_at IS NULL;

-- @deregister
UPDATE outlast_workers
SET stopped_at = :now
WHERE instance_id = :instance AND boot_id = :boot
  AND started_at IS NOT NULL AND stopped_at IS NULL;

-- @drop_registrations
-- Long stopped, or long silent. The row itself stays while runs point at it.
UPDATE outlast_workers
SET started_at = NULL, seen_at = NULL, stopped_at = NULL, alive_until = NULL, info = NULL
WHERE started_at IS NOT NULL
  AND coalesce(stopped_at, seen_at) < :before
  AND (stopped_at IS NOT NULL OR alive_until <= :mono);

-- @delete
DELETE FROM outlast_workers
WHERE id IN (
  SELECT k.id FROM outlast_workers AS k
  WHERE k.started_at IS NULL AND k.id <> 0  -- nobody stays: lost traces point at it
    AND NOT EXISTS (SELECT 1 FROM outlast_runs AS r WHERE r.worker = k.id)
    AND k.id NOT IN (SELECT worker FROM outlast_open_runs)
  LIMIT :limit
);
