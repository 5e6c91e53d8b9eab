-- @list
SELECT
  instance_id, boot_id, info, started_at, seen_at, stopped_at,
  stopped_at IS NULL AND alive_until > :mono
FROM outlast_workers
WHERE started_at IS NOT NULL
ORDER BY started_at, instance_id, boot_id;

-- @register
-- A claim may have created the row before.
INSERT INTO outlast_workers (instance_id, boot_id, started_at, seen_at, alive_until, info)
VALUES (:instance, :boot, :now, :now, -1, :info)
ON CONFLICT (instance_id, boot_id) DO UPDATE SET
  started_at = excluded.started_at,
  seen_at = excluded.seen_at,
  stopped_at = NULL,
  alive_until = excluded.alive_until,
  info = excluded.info;

-- @heartbeat
-- Element 8 of the information is whether the worker is stopping.
UPDATE outlast_workers
SET
  seen_at = :now,
  alive_until = :until,
  info = CASE WHEN :stopping THEN json_set(info, '$[8]', json('true')) ELSE info END
WHERE instance_id = :instance AND boot_id = :boot
  AND started_at IS NOT NULL AND stopped_at IS NULL;

-- @deregister
UPDATE outlast_workers
SET stopped_at = :now
WHERE instance_id = :instance AND boot_id = :boot
  AND started_at IS NOT NULL AND stopped_at IS NULL;

-- @drop_registrations
-- Stopped or expired long ago. The row itself stays while runs refer to it.
UPDATE outlast_workers
SET started_at = NULL, seen_at = NULL, stopped_at = NULL, alive_until = NULL, info = NULL
WHERE started_at IS NOT NULL
  AND coalesce(stopped_at, seen_at) < :before
  AND (stopped_at IS NOT NULL OR alive_until <= :mono);

-- @delete
DELETE FROM outlast_workers
WHERE id IN (
  SELECT k.id FROM outlast_workers AS k
  WHERE k.started_at IS NULL AND k.id <> 0  -- 0 is the unknown worker
    AND NOT EXISTS (SELECT 1 FROM outlast_runs AS r WHERE r.worker = k.id)
    AND k.id NOT IN (SELECT worker FROM outlast_open_runs)
  LIMIT :limit
);
