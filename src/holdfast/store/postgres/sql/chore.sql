-- @look
-- Each part ends at the first row it finds.
SELECT
  EXISTS (
    SELECT 1 FROM holdfast.open_runs
    WHERE lease_until <= coalesce(:mono::bigint, holdfast.micros())
  ),
  EXISTS (
    SELECT 1 FROM holdfast.waiting
    WHERE start_deadline IS NOT NULL
      AND start_deadline < coalesce(:now::bigint, holdfast.micros()) AND state = 'queued'
  ),
  EXISTS (SELECT 1 FROM holdfast.reservations WHERE status = 'active'),
  EXISTS (SELECT 1 FROM holdfast.groups WHERE closing IS NOT NULL AND NOT swept)
  OR EXISTS (
    SELECT 1 FROM holdfast.groups
    WHERE sealed_at IS NULL AND closing IS NULL
      AND created_at < coalesce(:now::bigint, holdfast.micros()) - :abandoned::bigint
  );
