-- @get
-- No schedule is named like an id.
SELECT id, name, plan, version, created_at, updated_at, next_slot, next_trigger_at, last_triggered_at
FROM outlast_schedules
WHERE name = :name OR id = :name;

-- @page
SELECT id, name, plan, version, created_at, updated_at, next_slot, next_trigger_at, last_triggered_at
FROM outlast_schedules
WHERE name > :after
ORDER BY name
LIMIT :limit;

-- @due
SELECT id, name, plan, version, created_at, updated_at, next_slot, next_trigger_at, last_triggered_at
FROM outlast_schedules INDEXED BY outlast_schedules_due
WHERE enabled AND next_trigger_at IS NOT NULL AND next_trigger_at <= :until
ORDER BY next_trigger_at, id
LIMIT :limit;

-- @later
SELECT min(next_trigger_at)
FROM outlast_schedules INDEXED BY outlast_schedules_due
WHERE enabled AND next_trigger_at IS NOT NULL AND next_trigger_at > :until;

-- @expected
-- The times of the expected version; no row if the version differs or the name is taken.
SELECT s.created_at, s.updated_at, s.last_triggered_at
FROM (SELECT 1)
LEFT JOIN outlast_schedules AS s ON s.id = :id
WHERE s.version IS :expected
  AND NOT EXISTS (SELECT 1 FROM outlast_schedules AS o WHERE o.name = :name AND o.id <> :id);

-- @delete
DELETE FROM outlast_schedules WHERE id = :id AND version = :expected;

-- @write
-- A new row, so that AUTOINCREMENT gives a new version.
INSERT INTO outlast_schedules (
  id, name, plan, enabled, created_at, updated_at, next_slot, next_trigger_at, last_triggered_at
)
VALUES (
  :id, :name, :plan, :enabled, :created_at, :updated_at, :next_slot, :next_trigger_at,
  :last_triggered_at
);

-- @advance
-- Compare-and-swap of every trigger: this version, enabled, and this slot is the next.
UPDATE outlast_schedules
SET
  next_slot = :next_slot,
  next_trigger_at = :next_trigger_at,
  last_triggered_at = CASE WHEN :triggers THEN :at ELSE last_triggered_at END
WHERE version = :version AND id = :id AND enabled AND next_slot = :at;

-- @pass_slot
-- The slot has a row already: the schedule advances without a trigger.
UPDATE outlast_schedules
SET next_slot = :next_slot, next_trigger_at = :next_trigger_at
WHERE version = :version AND id = :id AND enabled AND next_slot = :at;

-- @is_current
SELECT 1 FROM outlast_schedules
WHERE version = :version AND id = :id AND enabled AND next_slot = :at;

-- @slot_state
-- Whether the slot has a row, and whether the job is stored or its key or active key is held.
SELECT
  EXISTS (SELECT 1 FROM outlast_slots WHERE series = :series AND slot_at = :at),
  EXISTS (SELECT 1 FROM outlast_jobs WHERE id = :job_id)
  OR EXISTS (
    SELECT 1 FROM outlast_keys WHERE scope = 'key' AND key = :key AND bucket = :bucket
  )
  OR EXISTS (
    SELECT 1 FROM outlast_keys WHERE scope = 'active' AND key = :active_key AND bucket = ''
  );

-- @claim_slot
INSERT INTO outlast_slots (
  series, slot_at, outcome, planned, actual, schedule_id, job_id, reason
)
VALUES (:series, :at, :outcome, :planned, :now, :id, :job_id, :reason);

-- @slots
SELECT series, slot_at, outcome, planned, actual, schedule_id, job_id, reason
FROM outlast_slots
WHERE series = :series AND slot_at < :before
ORDER BY slot_at DESC
LIMIT :limit;

-- @slot_rows
SELECT s.series, s.slot_at, s.outcome, s.planned, s.actual, s.schedule_id, s.job_id, s.reason
FROM json_each(:moments) AS m
CROSS JOIN outlast_slots AS s ON s.series = :series AND s.slot_at = m.value;

-- @running_names
SELECT o.name
FROM json_each(:names) AS n
CROSS JOIN outlast_open_runs AS o ON o.delivery = 'once' AND o.name = n.value;

-- @misfired
-- The job of the slot missed its start deadline.
UPDATE outlast_slots
SET outcome = 'skipped'
WHERE job_id IN (
  SELECT j.id
  FROM temp.outlast_changes AS c
  CROSS JOIN outlast_jobs AS j ON j.seq = c.job
  WHERE c.accepted AND c.kind = 'misfire'
);

-- @count_routine
-- The number of firings without an obstacle; a batch is written only if all have none.
SELECT count(*)
FROM json_each(:firings) AS f
CROSS JOIN outlast_schedules AS c
  ON c.version = f.value ->> 1 AND c.id = f.value ->> 0 AND c.enabled AND c.next_slot = f.value ->> 3
WHERE NOT EXISTS (
    SELECT 1 FROM outlast_slots AS s WHERE s.series = f.value ->> 2 AND s.slot_at = f.value ->> 3
  )
  AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.id = f.value ->> 9)
  AND NOT EXISTS (
    SELECT 1 FROM outlast_keys AS k
    WHERE k.scope = 'active' AND k.key = f.value ->> 10 AND k.bucket = ''
  );

-- @advance_batch
UPDATE outlast_schedules
SET
  next_slot = f.value ->> 7,
  next_trigger_at = f.value ->> 8,
  last_triggered_at = f.value ->> 3
FROM json_each(:firings) AS f
WHERE outlast_schedules.version = f.value ->> 1;

-- @claim_slot_batch
INSERT INTO outlast_slots (
  series, slot_at, outcome, planned, actual, schedule_id, job_id, reason
)
SELECT
  f.value ->> 2, f.value ->> 3, f.value ->> 4, f.value ->> 5, :now, f.value ->> 0, f.value ->> 9,
  f.value ->> 6
FROM json_each(:firings) AS f;

-- @claim_key_batch
INSERT INTO outlast_keys (scope, key, bucket, job_id)
SELECT 'active', f.value ->> 10, '', f.value ->> 9
FROM json_each(:firings) AS f
WHERE f.value ->> 10 IS NOT NULL;

-- @job_batch
INSERT INTO outlast_jobs (
  id, type, name, params, queue, delivery, max_attempts, created_at,
  slot_at, start_deadline, group_id, template_id, template_at, schedule_id, active_key,
  metadata
)
SELECT
  j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3,
  j.value ->> 4, j.value ->> 5, j.value ->> 6, :now,
  j.value ->> 7, j.value ->> 8, j.value ->> 9,
  j.value ->> 10, j.value ->> 11, j.value ->> 12, j.value ->> 16, j.value ->> 17
FROM json_each(:jobs) AS j;

-- @wait_batch
-- The write lock is held, so the new jobs have consecutive numbers in the order given.
INSERT INTO outlast_waiting (
  job, state, queue, type, name, delivery, priority, position,
  available_at, created_at, start_deadline, token, failures, losses, member_of
)
SELECT
  :first + j.key, j.value ->> 13, j.value ->> 4, j.value ->> 1,
  j.value ->> 2, j.value ->> 5, j.value ->> 14, 0,
  j.value ->> 15, :now, j.value ->> 8, 0, 0, 0, NULL
FROM json_each(:jobs) AS j;
