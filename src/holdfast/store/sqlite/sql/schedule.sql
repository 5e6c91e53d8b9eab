-- @get
-- An id is never a name.
SELECT id, name, plan, version, created_at, updated_at, next_slot, next_trigger_at, last_triggered_at
FROM holdfast_schedules
WHERE name = :name OR id = :name;

-- @page
SELECT id, name, plan, version, created_at, updated_at, next_slot, next_trigger_at, last_triggered_at
FROM holdfast_schedules
WHERE name > :after
ORDER BY name
LIMIT :limit;

-- @due
SELECT id, name, plan, version, created_at, updated_at, next_slot, next_trigger_at, last_triggered_at
FROM holdfast_schedules INDEXED BY holdfast_schedules_due
WHERE enabled AND next_trigger_at IS NOT NULL AND next_trigger_at <= :until
ORDER BY next_trigger_at, id
LIMIT :limit;

-- @later
SELECT min(next_trigger_at)
FROM holdfast_schedules INDEXED BY holdfast_schedules_due
WHERE enabled AND next_trigger_at IS NOT NULL AND next_trigger_at > :until;

-- @expected
-- What it was created with, if it is the version that its writer knows and the name is free.
SELECT s.created_at, s.updated_at, s.last_triggered_at
FROM (SELECT 1)
LEFT JOIN holdfast_schedules AS s ON s.id = :id
WHERE s.version IS :expected
  AND NOT EXISTS (SELECT 1 FROM holdfast_schedules AS o WHERE o.name = :name AND o.id <> :id);

-- @delete
DELETE FROM holdfast_schedules WHERE id = :id AND version = :expected;

-- @write
-- A new row: its number is one that no row before it had.
INSERT INTO holdfast_schedules (
  id, name, plan, enabled, created_at, updated_at, next_slot, next_trigger_at, last_triggered_at
)
VALUES (
  :id, :name, :plan, :enabled, :created_at, :updated_at, :next_slot, :next_trigger_at,
  :last_triggered_at
);

-- @go_on
-- The compare of every trigger: that version, enabled, and that slot its next.
UPDATE holdfast_schedules
SET
  next_slot = :next_slot,
  next_trigger_at = :next_trigger_at,
  last_triggered_at = CASE WHEN :triggers THEN :at ELSE last_triggered_at END
WHERE version = :version AND id = :id AND enabled AND next_slot = :at;

-- @pass_by
-- The slot was somebody's already: the schedule goes on without having triggered.
UPDATE holdfast_schedules
SET next_slot = :next_slot, next_trigger_at = :next_trigger_at
WHERE version = :version AND id = :id AND enabled AND next_slot = :at;

-- @has_slot
SELECT 1 FROM holdfast_slots WHERE series = :series AND slot_at = :at;

-- @claim_slot
INSERT INTO holdfast_slots (
  series, slot_at, outcome, planned, actual, schedule_id, job_id, reason
)
VALUES (:series, :at, :outcome, :planned, :now, :id, :job_id, :reason);

-- @slots
SELECT series, slot_at, outcome, planned, actual, schedule_id, job_id, reason
FROM holdfast_slots
WHERE series = :series AND slot_at < :before
ORDER BY slot_at DESC
LIMIT :limit;

-- @slot_rows
SELECT s.series, s.slot_at, s.outcome, s.planned, s.actual, s.schedule_id, s.job_id, s.reason
FROM json_each(:moments) AS m
CROSS JOIN holdfast_slots AS s ON s.series = :series AND s.slot_at = m.value;

-- @running_names
SELECT o.name
FROM json_each(:names) AS n
CROSS JOIN holdfast_open_runs AS o ON o.delivery = 'once' AND o.name = n.value;

-- @misfired
-- The job of a slot could not start in time.
UPDATE holdfast_slots
SET outcome = 'skipped'
WHERE job_id IN (
  SELECT j.id
  FROM temp.holdfast_changes AS c
  CROSS JOIN holdfast_jobs AS j ON j.seq = c.job
  WHERE c.ok AND c.kind = 'misfire'
);
