-- @now
SELECT coalesce(:now::bigint, outlast.micros());

-- @get
-- A name is never a UUID.
SELECT
  id, name, plan::text, version, created_at, updated_at, next_slot, next_trigger_at,
  last_triggered_at
FROM outlast.schedules
WHERE name = :name::text
UNION ALL
SELECT
  id, name, plan::text, version, created_at, updated_at, next_slot, next_trigger_at,
  last_triggered_at
FROM outlast.schedules
WHERE id = :id::uuid;

-- @page
SELECT
  id, name, plan::text, version, created_at, updated_at, next_slot, next_trigger_at,
  last_triggered_at
FROM outlast.schedules
WHERE name > :after::text
ORDER BY name
LIMIT :limit::bigint;

-- @due
-- The due schedules, the time, and when the next one is due, in one snapshot; one row also if no
-- schedule is due.
WITH t AS MATERIALIZED (
  SELECT c.now, c.now + :ahead::bigint AS until
  FROM (SELECT coalesce(:now::bigint, outlast.micros()) AS now) AS c
)
SELECT
  t.now,
  (
    SELECT min(l.next_trigger_at) FROM outlast.schedules AS l
    WHERE l.enabled AND l.next_trigger_at IS NOT NULL AND l.next_trigger_at > t.until
  ),
  d.id, d.name, d.plan, d.version, d.created_at, d.updated_at, d.next_slot, d.next_trigger_at,
  d.last_triggered_at
FROM t
LEFT JOIN LATERAL (
  SELECT
    s.id, s.name, s.plan::text AS plan, s.version, s.created_at, s.updated_at, s.next_slot,
    s.next_trigger_at, s.last_triggered_at
  FROM outlast.schedules AS s
  WHERE s.enabled AND s.next_trigger_at IS NOT NULL AND s.next_trigger_at <= t.until
  ORDER BY s.next_trigger_at, s.id
  LIMIT :limit::bigint
) AS d ON true
ORDER BY d.next_trigger_at, d.id;

-- @create
-- No row if the id or the name exists.
INSERT INTO outlast.schedules AS s (
  id, name, plan, enabled, created_at, updated_at, next_slot, next_trigger_at
)
VALUES (
  :id::uuid, :name::text, :plan::json, :enabled::boolean, :now::bigint, :now::bigint,
  :next_slot::bigint, :next_trigger_at::bigint
)
ON CONFLICT DO NOTHING
RETURNING
  s.id, s.name, s.plan::text, s.version, s.created_at, s.updated_at, s.next_slot,
  s.next_trigger_at, s.last_triggered_at;

-- @write
-- A name in use violates the unique index.
UPDATE outlast.schedules AS s
SET
  name = :name::text,
  plan = :plan::json,
  enabled = :enabled::boolean,
  version = nextval('outlast.schedule_versions'),
  updated_at = greatest(:now::bigint, s.updated_at + 1),
  next_slot = :next_slot::bigint,
  next_trigger_at = :next_trigger_at::bigint
WHERE s.id = :id::uuid AND s.version = :expected::bigint
RETURNING
  s.id, s.name, s.plan::text, s.version, s.created_at, s.updated_at, s.next_slot,
  s.next_trigger_at, s.last_triggered_at;

-- @delete
DELETE FROM outlast.schedules AS s
WHERE s.id = :id::uuid AND s.version = :expected::bigint
RETURNING
  s.id, s.name, s.plan::text, s.version, s.created_at, s.updated_at, s.next_slot,
  s.next_trigger_at, s.last_triggered_at;

-- @lock
-- FOR UPDATE: no other transaction fires or edits these schedules until the commit.
SELECT id, version, next_slot
FROM outlast.schedules
WHERE id = ANY(:ids::text[]::uuid[]) AND enabled
ORDER BY id
FOR UPDATE;

-- @advance
-- The schedules are locked, so no version is compared. Without a job, none has triggered.
UPDATE outlast.schedules AS s
SET
  next_slot = u.next_slot,
  next_trigger_at = u.next_trigger_at,
  last_triggered_at = coalesce(u.triggered, s.last_triggered_at)
FROM unnest(
  :ids::text[]::uuid[], :next_slots::bigint[], :next_triggers::bigint[], :triggered::bigint[]
) AS u (id, next_slot, next_trigger_at, triggered)
WHERE s.id = u.id;

-- @add_slots
-- A slot that was taken since the lookup violates the primary key.
INSERT INTO outlast.slots (
  series, slot_at, outcome, planned, actual, schedule_id, job, reason
)
SELECT
  u.series, u.slot_at, u.outcome, u.planned, :now::bigint, u.schedule_id, u.job::uuid, u.reason
FROM unnest(
  :series::text[], :ats::bigint[], :outcomes::text[], :planned::bigint[], :schedules::text[],
  :jobs::text[], :reasons::text[]
) AS u (series, slot_at, outcome, planned, schedule_id, job, reason);

-- @slots
SELECT series, slot_at, outcome, planned, actual, schedule_id, job, reason
FROM outlast.slots
WHERE series = :series::text AND slot_at < :before::bigint
ORDER BY slot_at DESC
LIMIT :limit::bigint;

-- @slots_at
SELECT series, slot_at, outcome, planned, actual, schedule_id, job, reason
FROM outlast.slots
WHERE series = :series::text AND slot_at = ANY(:moments::bigint[]);

-- @running_names
SELECT o.name
FROM outlast.open_runs AS o
WHERE o.delivery = 'once' AND o.name = ANY(:names::text[]);

-- @mark_slots_skipped
-- The jobs of these slots missed their start deadline.
UPDATE outlast.slots SET outcome = 'skipped' WHERE job = ANY(:jobs::text[]::uuid[]);
