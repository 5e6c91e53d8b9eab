-- Dumps all rows by key and loads them. A row is written in the steps that a store takes itself, so
-- that every trigger accepts it.

-- @queues
SELECT name, ordering, gap, concurrency, paused_at, pause_reason, resume_at
FROM outlast_queues
WHERE name > :name
ORDER BY name
LIMIT :limit;

-- @groups
SELECT seq, id, name, mode, on_failure, total, created_at, sealed_at, closing, reason, swept
FROM outlast_groups
WHERE seq > :seq
ORDER BY seq
LIMIT :limit;

-- @keys
SELECT scope, key, bucket, job_id
FROM outlast_keys
WHERE (scope, key, bucket) > (:scope, :key, :bucket)
ORDER BY scope, key, bucket
LIMIT :limit;

-- @slots
SELECT series, slot_at, outcome, planned, actual, schedule_id, job_id, reason
FROM outlast_slots
WHERE (series, slot_at) > (:series, :slot_at)
ORDER BY series, slot_at
LIMIT :limit;

-- @schedules
SELECT
  id, name, plan, version, enabled, created_at, updated_at, next_slot, next_trigger_at,
  last_triggered_at
FROM outlast_schedules
WHERE id > :id
ORDER BY id
LIMIT :limit;

-- @documents
SELECT kind, key, value, version, created_at, updated_at
FROM outlast_documents
WHERE (kind, key) > (:kind, :key)
ORDER BY kind, key
LIMIT :limit;

-- @jobs
SELECT
  j.seq, j.id, j.type, j.name, j.queue, j.delivery, j.params, j.max_attempts, j.created_at,
  j.slot_at, j.start_deadline, p.id, coalesce(r.id, j.id), j.group_id, g.id, j.template_id,
  j.template_at, j.schedule_id, coalesce(w.state, e.state), e.reason, e.at,
  coalesce(w.priority, e.priority), coalesce(w.position, e.position),
  coalesce(w.available_at, e.available_at), coalesce(w.token, e.token),
  coalesce(w.failures, e.failures), coalesce(w.losses, e.losses), j.active_key, j.metadata
FROM outlast_jobs AS j
LEFT JOIN outlast_ends AS e ON e.job = j.seq
LEFT JOIN outlast_waiting AS w ON w.job = j.seq
LEFT JOIN outlast_jobs AS p ON p.seq = j.retry_of
LEFT JOIN outlast_jobs AS r ON r.seq = j.root
LEFT JOIN outlast_groups AS g ON g.seq = j.member_of
WHERE j.seq > :seq AND (e.job IS NOT NULL OR w.job IS NOT NULL AND NOT :ended_only)
ORDER BY j.seq
LIMIT :limit;

-- @runs
SELECT
  r.job, r.token, j.id, r.run_id, r.status, r.reason, k.instance_id, k.boot_id, r.started_at,
  r.finished_at, r.error, r.result, r.exit_code, r.log_path, r.artifacts, r.progress
FROM outlast_runs AS r
CROSS JOIN outlast_jobs AS j ON j.seq = r.job
CROSS JOIN outlast_workers AS k ON k.id = r.worker
WHERE (r.job, r.token) > (:seq, :token)
ORDER BY r.job, r.token
LIMIT :limit;

-- @events
SELECT e.id, j.id, e.queue, e.at, e.kind, e.token, e.run_id, e.reason, e.detail
FROM outlast_events AS e
LEFT JOIN outlast_jobs AS j ON j.seq = e.job
WHERE e.id > :id
ORDER BY e.id
LIMIT :limit;

-- @reservations
SELECT
  seq, id, queue, job_id, caller, request, status, reason, reserved_at, expires_at, span, ended_at
FROM outlast_reservations
WHERE seq > :seq
ORDER BY seq
LIMIT :limit;

-- @counters
SELECT substr(name, length('outlast_') + 1), seq
FROM sqlite_sequence
WHERE name GLOB 'outlast_*' AND substr(name, length('outlast_') + 1) > :name
ORDER BY name
LIMIT :limit;

-- @put_queues
INSERT INTO outlast_queues (
  name, ordering, gap, concurrency, paused_at, pause_reason, resume_at
)
VALUES (:name, :ordering, :gap, :concurrency, :paused_at, :pause_reason, :resume_at)
ON CONFLICT (name) DO UPDATE
SET
  ordering = excluded.ordering,
  gap = excluded.gap,
  concurrency = excluded.concurrency,
  paused_at = excluded.paused_at,
  pause_reason = excluded.pause_reason,
  resume_at = excluded.resume_at;

-- @drop_queues
DELETE FROM outlast_queues WHERE name = :name;

-- @put_groups
INSERT INTO outlast_groups (
  seq, id, name, mode, on_failure, total, created_at, sealed_at, closing, reason, swept
)
VALUES (
  :seq, :id, :name, :mode, :on_failure, :total, :created_at, :sealed_at, :closing, :reason, :swept
)
ON CONFLICT (seq) DO UPDATE
SET
  sealed_at = excluded.sealed_at,
  closing = excluded.closing,
  reason = excluded.reason,
  swept = excluded.swept;

-- @drop_groups
-- A group with members stays.
DELETE FROM outlast_groups
WHERE seq = :seq AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.member_of = :seq);

-- @put_keys
INSERT INTO outlast_keys (scope, key, bucket, job_id)
VALUES (:scope, :key, :bucket, :job_id)
ON CONFLICT (scope, key, bucket) DO UPDATE
SET job_id = excluded.job_id;

-- @drop_keys
DELETE FROM outlast_keys WHERE scope = :scope AND key = :key AND bucket = :bucket;

-- @claim_slots
-- A slot without a job was run by hand since the last copy.
UPDATE outlast_slots
SET
  outcome = 'manual',
  actual = :actual,
  schedule_id = :schedule_id,
  job_id = :job_id,
  reason = :reason
WHERE series = :series AND slot_at = :slot_at AND job_id IS NULL AND :job_id IS NOT NULL;

-- @mark_slots
UPDATE outlast_slots
SET outcome = :outcome
WHERE series = :series AND slot_at = :slot_at AND outcome <> :outcome;

-- @put_slots
INSERT INTO outlast_slots (
  series, slot_at, outcome, planned, actual, schedule_id, job_id, reason
)
VALUES (:series, :slot_at, :outcome, :planned, :actual, :schedule_id, :job_id, :reason)
ON CONFLICT (series, slot_at) DO NOTHING;

-- @clear_schedules
-- Another schedule may have the name by now.
DELETE FROM outlast_schedules WHERE id = :id OR name = :name;

-- @put_schedules
INSERT INTO outlast_schedules (
  id, name, plan, version, enabled, created_at, updated_at, next_slot, next_trigger_at,
  last_triggered_at
)
VALUES (
  :id, :name, :plan, :version, :enabled, :created_at, :updated_at, :next_slot, :next_trigger_at,
  :last_triggered_at
);

-- @drop_schedules
DELETE FROM outlast_schedules WHERE id = :id;

-- @drop_documents
DELETE FROM outlast_documents WHERE kind = :kind AND key = :key;

-- @put_documents
INSERT INTO outlast_documents (kind, key, value, version, created_at, updated_at)
VALUES (:kind, :key, :value, :version, :created_at, :updated_at);

-- @edit_jobs
UPDATE outlast_jobs SET params = :params WHERE id = :id AND params <> :params;

-- @put_jobs
INSERT INTO outlast_jobs (
  seq, id, type, name, queue, delivery, params, max_attempts, created_at, slot_at,
  start_deadline, retry_of, root, group_id, member_of, template_id, template_at, schedule_id,
  active_key, metadata
)
SELECT
  :seq, :id, :type, :name, :queue, :delivery, :params, :max_attempts, :created_at, :slot_at,
  :start_deadline, p.seq, coalesce(p.root, p.seq), :group_id, g.seq, :template_id, :template_at,
  :schedule_id, :active_key, :metadata
FROM (SELECT 1)
LEFT JOIN outlast_jobs AS p ON p.id = :retry_of
LEFT JOIN outlast_groups AS g ON g.id = :member_of
WHERE NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = :seq)
  AND (p.seq IS NOT NULL) = (:retry_of IS NOT NULL)
  AND (g.seq IS NOT NULL) = (:member_of IS NOT NULL);

-- @leave_waiting
DELETE FROM outlast_waiting WHERE job = :seq;

-- @wait_jobs
INSERT INTO outlast_waiting (
  job, state, queue, type, name, delivery, priority, position, available_at, created_at,
  start_deadline, token, failures, losses, member_of
)
SELECT
  j.seq, :state, j.queue, j.type, j.name, j.delivery, :priority, :position, :available_at,
  j.created_at, j.start_deadline, :token, :failures, :losses, j.member_of
FROM outlast_jobs AS j
WHERE j.id = :id AND :finished_at IS NULL;

-- @change_ends
UPDATE outlast_ends
SET state = :state, reason = :reason
WHERE job = :seq AND state <> :state;

-- @end_jobs
INSERT INTO outlast_ends (
  job, state, reason, at, queue, priority, position, available_at, token, failures, losses
)
SELECT
  j.seq, :state, :reason, :finished_at, j.queue, :priority, :position, :available_at, :token,
  :failures, :losses
FROM outlast_jobs AS j
WHERE j.id = :id AND :finished_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM outlast_ends AS e WHERE e.job = j.seq);

-- @chain_of
-- The source pruned the whole chain since the last copy.
SELECT seq FROM outlast_jobs WHERE seq = :seq OR root = :seq;

-- @end_deleted
-- A trigger refuses to delete a job that has not ended.
INSERT INTO outlast_ends (
  job, state, at, queue, priority, position, available_at, token, failures, losses
)
SELECT j.seq, 'cancelled', j.created_at, j.queue, 0, 0, j.created_at, 0, 0, 0
FROM outlast_jobs AS j
WHERE j.seq = :seq AND NOT EXISTS (SELECT 1 FROM outlast_ends AS e WHERE e.job = j.seq);

-- @drop_jobs
DELETE FROM outlast_jobs WHERE seq = :seq OR root = :seq;

-- @update_runs
-- Artifacts, exit code and error of a closed run may change after its end.
UPDATE outlast_runs
SET artifacts = :artifacts, exit_code = :exit_code, error = :error
WHERE run_id = :run_id;

-- @run_workers
INSERT INTO outlast_workers (instance_id, boot_id)
VALUES (:holder, :boot_id)
ON CONFLICT DO NOTHING;

-- @put_runs
INSERT INTO outlast_runs (
  job, token, run_id, status, reason, worker, started_at, finished_at, error, result, exit_code,
  log_path, artifacts, progress
)
SELECT
  j.seq, :token, :run_id, :status, :reason, k.id, :started_at, :finished_at, :error, :result,
  :exit_code, :log_path, :artifacts, :progress
FROM outlast_jobs AS j
CROSS JOIN outlast_workers AS k ON k.instance_id = :holder AND k.boot_id = :boot_id
WHERE j.id = :job_id
  AND NOT EXISTS (SELECT 1 FROM outlast_runs AS r WHERE r.run_id = :run_id);

-- @put_events
INSERT INTO outlast_events (id, job, queue, at, kind, token, run_id, reason, detail)
SELECT :id, j.seq, :queue, :at, :kind, :token, :run_id, :reason, :detail
FROM (SELECT 1)
LEFT JOIN outlast_jobs AS j ON j.id = :job_id
WHERE (j.seq IS NOT NULL) = (:job_id IS NOT NULL)
ON CONFLICT (id) DO NOTHING;

-- @drop_events
DELETE FROM outlast_events WHERE id = :id;

-- @put_reservations
INSERT INTO outlast_reservations (
  seq, id, queue, job_id, caller, request, status, reason, reserved_at, expires_at, span, until,
  ended_at
)
VALUES (
  :seq, :id, :queue, :job_id, :caller, :request, :status, :reason, :reserved_at, :expires_at,
  :span, :expires_at - :now + :mono, :ended_at
)
ON CONFLICT (seq) DO UPDATE
SET
  status = excluded.status,
  reason = excluded.reason,
  expires_at = excluded.expires_at,
  span = excluded.span,
  until = excluded.until,
  ended_at = excluded.ended_at;

-- @drop_reservations
DELETE FROM outlast_reservations WHERE seq = :seq;

-- @raise_counters
-- Other counters follow from the rows.
UPDATE sqlite_sequence SET seq = max(seq, :last) WHERE name = 'outlast_' || :name;

-- @put_counters
INSERT INTO sqlite_sequence (name, seq)
SELECT 'outlast_' || :name, :last
WHERE :name IN ('events', 'documents', 'schedules')
  AND NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'outlast_' || :name);
