-- @register
-- An earlier claim may have added the row.
INSERT INTO outlast.workers AS k (instance_id, boot_id, started_at, seen_at, alive_until, info)
VALUES (:instance::text, :boot::text, :now::bigint, :now::bigint, -1, :info::json)
ON CONFLICT (instance_id, boot_id) DO UPDATE SET
  started_at = excluded.started_at,
  seen_at = excluded.seen_at,
  stopped_at = NULL,
  alive_until = excluded.alive_until,
  info = excluded.info;

-- @heartbeat
-- Element 8 of the information is whether the worker is stopping.
UPDATE outlast.workers
SET
  seen_at = coalesce(:now::bigint, outlast.micros()),
  alive_until = coalesce(:mono::bigint, outlast.micros()) + :span::bigint,
  info = CASE WHEN :stopping::boolean THEN jsonb_set(info::jsonb, '{8}', 'true')::json ELSE info END
WHERE instance_id = :instance::text AND boot_id = :boot::text
  AND started_at IS NOT NULL AND stopped_at IS NULL
RETURNING id;

-- @deregister
UPDATE outlast.workers
SET stopped_at = :now::bigint
WHERE instance_id = :instance::text AND boot_id = :boot::text
  AND started_at IS NOT NULL AND stopped_at IS NULL;

-- @list
SELECT
  instance_id, boot_id, info::text, started_at, seen_at, stopped_at,
  stopped_at IS NULL AND alive_until > coalesce(:mono::bigint, outlast.micros())
FROM outlast.workers
WHERE started_at IS NOT NULL
ORDER BY started_at, instance_id, boot_id;

-- @clear_registrations
-- Stopped long ago, or without a heartbeat. The row stays while runs reference it.
UPDATE outlast.workers
SET started_at = NULL, seen_at = NULL, stopped_at = NULL, alive_until = NULL, info = NULL
WHERE started_at IS NOT NULL
  AND coalesce(stopped_at, seen_at) < :before::bigint
  AND (stopped_at IS NOT NULL OR alive_until <= :mono::bigint);
