-- @look
-- Each part ends at the first row it finds. The locks of workers that hold runs are tried: one that
-- can be had belongs to nobody, and is had until this statement ends.
SELECT
  EXISTS (
    SELECT 1 FROM outlast.open_runs
    WHERE lease_until <= (SELECT coalesce(:mono::bigint, outlast.micros()))
  ),
  EXISTS (
    SELECT 1 FROM outlast.waiting
    WHERE start_deadline IS NOT NULL AND CASE WHEN state = 'queued' THEN true ELSE false END
      AND start_deadline < (SELECT coalesce(:now::bigint, outlast.micros()))
  ),
  EXISTS (SELECT 1 FROM outlast.reservations WHERE status = 'active'),
  EXISTS (SELECT 1 FROM outlast.groups WHERE closing IS NOT NULL AND NOT swept)
  OR EXISTS (
    SELECT 1 FROM outlast.groups
    WHERE sealed_at IS NULL AND closing IS NULL
      AND created_at < (SELECT coalesce(:now::bigint, outlast.micros())) - :abandoned::bigint
  ),
  pg_postmaster_start_time() < clock_timestamp() - make_interval(secs => :calm::double precision)
  AND EXISTS (
    SELECT 1
    FROM (SELECT DISTINCT o.worker FROM outlast.open_runs AS o) AS h
    JOIN outlast.workers AS k ON k.id = h.worker
    WHERE CASE
      WHEN starts_with(k.boot_id, :tree::text)
        THEN pg_try_advisory_xact_lock(hashtextextended(:lock::text || k.boot_id, 0))
      ELSE false
    END
  );
