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
-- Workers that stopped long ago, or without a heartbeat, and whose row a run references. `delete`
-- removes the rows of the others.
UPDATE outlast.workers AS k
SET started_at = NULL, seen_at = NULL, stopped_at = NULL, alive_until = NULL, info = NULL
WHERE k.started_at IS NOT NULL
  AND coalesce(k.stopped_at, k.seen_at) < :before::bigint
  AND (k.stopped_at IS NOT NULL OR k.alive_until <= :mono::bigint)
  AND (
    (SELECT 1 FROM outlast.runs AS r WHERE r.worker = k.id LIMIT 1) IS NOT NULL
    OR k.id IN (SELECT o.worker FROM outlast.open_runs AS o)
  );

-- @former
-- Rows without a registration, or with one as above, that no run references; 0 is the unknown
-- worker.
SELECT k.id
FROM outlast.workers AS k
WHERE k.id <> 0
  AND (
    k.started_at IS NULL
    OR coalesce(k.stopped_at, k.seen_at) < :before::bigint
      AND (k.stopped_at IS NOT NULL OR k.alive_until <= :mono::bigint)
  )
  AND (SELECT 1 FROM outlast.runs AS r WHERE r.worker = k.id LIMIT 1) IS NULL
  AND k.id NOT IN (SELECT o.worker FROM outlast.open_runs AS o)
LIMIT :limit::bigint;

-- @delete
-- Checked again: the worker may have registered or claimed meanwhile.
DELETE FROM outlast.workers AS k
WHERE k.id = ANY(:ids::integer[])
  AND (
    k.started_at IS NULL
    OR coalesce(k.stopped_at, k.seen_at) < :before::bigint
      AND (k.stopped_at IS NOT NULL OR k.alive_until <= :mono::bigint)
  )
  AND (SELECT 1 FROM outlast.runs AS r WHERE r.worker = k.id LIMIT 1) IS NULL
  AND k.id NOT IN (SELECT o.worker FROM outlast.open_runs AS o);
