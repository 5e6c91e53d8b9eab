-- Pages of all rows by key, and their load. Rows are written in the order in which their store
-- wrote them, so that no trigger refuses them.

-- @queues
SELECT name, ordering, gap, concurrency, paused_at, pause_reason, resume_at
FROM outlast.queues
WHERE name > :name::text
ORDER BY name
LIMIT :limit::bigint;

-- @groups
SELECT seq, id, name, mode, on_failure, total, created_at, sealed_at, closing, reason, swept
FROM outlast.groups
WHERE seq > :seq::bigint
ORDER BY seq
LIMIT :limit::bigint;

-- @keys
SELECT scope, key, bucket, job
FROM outlast.keys
WHERE (scope, key, bucket) > (:scope::text, :key::text, :bucket::text)
ORDER BY scope, key, bucket
LIMIT :limit::bigint;

-- @slots
SELECT series, slot_at, outcome, planned, actual, schedule_id, job, reason
FROM outlast.slots
WHERE (series, slot_at) > (:series::text, :slot_at::bigint)
ORDER BY series, slot_at
LIMIT :limit::bigint;

-- @schedules
SELECT
  id, name, plan::text, version, enabled, created_at, updated_at, next_slot, next_trigger_at,
  last_triggered_at
FROM outlast.schedules
WHERE id > coalesce(nullif(:id::text, ''), '00000000-0000-0000-0000-000000000000')::uuid
ORDER BY id
LIMIT :limit::bigint;

-- @documents
SELECT kind, key, value::text, version, created_at, updated_at
FROM outlast.documents
WHERE (kind, key) > (:kind::text, :key::text)
ORDER BY kind, key
LIMIT :limit::bigint;

-- @jobs
SELECT
  j.seq, j.id, j.type, j.name, j.queue, j.delivery, j.params::text, j.max_attempts, j.created_at,
  j.slot_at, j.start_deadline, j.retry_of, coalesce(j.root, j.id), j.group_id, j.member_group_id,
  j.template_id, j.template_at, j.schedule_id, coalesce(w.state, e.state), e.reason, e.at,
  coalesce(w.priority, e.priority), coalesce(w.position, e.position),
  coalesce(w.available_at, e.available_at), coalesce(w.token, e.token),
  coalesce(w.failures, e.failures), coalesce(w.losses, e.losses), j.active_key, j.metadata::text
FROM outlast.jobs AS j
LEFT JOIN LATERAL (SELECT * FROM outlast.ends AS i WHERE i.job = j.id OFFSET 0) AS e ON true
LEFT JOIN LATERAL (SELECT * FROM outlast.waiting AS i WHERE i.job = j.id OFFSET 0) AS w ON true
WHERE j.seq > :seq::bigint
  AND (e.job IS NOT NULL OR w.job IS NOT NULL AND NOT :ended_only::boolean)
ORDER BY j.seq
LIMIT :limit::bigint;

-- @runs
SELECT
  j.seq, r.token, j.id, r.run_id, r.status, r.reason, k.instance_id, k.boot_id, r.started_at,
  r.finished_at, r.error, r.result::text, r.exit_code, r.log_path,
  coalesce(r.artifacts, '[]')::text, r.progress::text
FROM outlast.jobs AS j
CROSS JOIN LATERAL (
  SELECT * FROM outlast.runs AS i WHERE i.job = j.id ORDER BY i.token OFFSET 0
) AS r
CROSS JOIN LATERAL (SELECT * FROM outlast.workers AS i WHERE i.id = r.worker OFFSET 0) AS k
WHERE j.seq >= :seq::bigint AND (j.seq > :seq::bigint OR r.token > :token::bigint)
ORDER BY j.seq, r.token
LIMIT :limit::bigint;

-- @events
SELECT id, job, queue, at, kind, token, run_id, reason, detail
FROM outlast.events
WHERE id > :id::bigint
ORDER BY id
LIMIT :limit::bigint;

-- @reservations
SELECT
  seq, id, queue, job, caller, request, status, reason, reserved_at, expires_at, span, ended_at
FROM outlast.reservations
WHERE seq > :seq::bigint
ORDER BY seq
LIMIT :limit::bigint;

-- @counters
-- The last numbers given. For events, the highest stored id: it is not a plain counter.
SELECT c.name, c.last
FROM (
  SELECT 'events' AS name, coalesce((SELECT max(id) FROM outlast.events), 0) AS last
  UNION ALL
  SELECT 'groups', last_value FROM outlast.groups_seq_seq
  UNION ALL
  SELECT 'jobs', last_value FROM outlast.jobs_seq_seq
  UNION ALL
  SELECT 'documents', last_value FROM outlast.document_versions
  UNION ALL
  SELECT 'reservations', last_value FROM outlast.reservations_seq_seq
  UNION ALL
  SELECT 'schedules', last_value FROM outlast.schedule_versions
) AS c
WHERE c.name > :name::text
ORDER BY c.name
LIMIT :limit::bigint;

-- @put_queues
INSERT INTO outlast.queues (
  name, ordering, gap, concurrency, paused_at, pause_reason, resume_at
)
SELECT r.name, r.ordering, r.gap, r.concurrency, r.paused_at, r.pause_reason, r.resume_at
FROM json_to_recordset(:rows::json) AS r (
  name text, ordering text, gap integer, concurrency integer, paused_at bigint,
  pause_reason text, resume_at bigint
)
ON CONFLICT (name) DO UPDATE
SET
  ordering = excluded.ordering,
  gap = excluded.gap,
  concurrency = excluded.concurrency,
  paused_at = excluded.paused_at,
  pause_reason = excluded.pause_reason,
  resume_at = excluded.resume_at;

-- @delete_queues
DELETE FROM outlast.queues AS q
USING json_to_recordset(:rows::json) AS r (name text)
WHERE q.name = r.name;

-- @put_groups
INSERT INTO outlast.groups (
  seq, id, name, mode, on_failure, total, created_at, sealed_at, closing, reason, swept
)
SELECT
  r.seq, r.id, r.name, r.mode, r.on_failure, r.total, r.created_at, r.sealed_at, r.closing,
  r.reason, r.swept
FROM json_to_recordset(:rows::json) AS r (
  seq bigint, id uuid, name text, mode text, on_failure text, total integer, created_at bigint,
  sealed_at bigint, closing text, reason text, swept boolean
)
ON CONFLICT (id) DO UPDATE
SET
  sealed_at = excluded.sealed_at,
  closing = excluded.closing,
  reason = excluded.reason,
  swept = excluded.swept;

-- @delete_groups
-- Only after its members.
DELETE FROM outlast.groups AS g
WHERE g.seq = ANY(ARRAY(SELECT r.seq FROM json_to_recordset(:rows::json) AS r (seq bigint)))
  AND (SELECT 1 FROM outlast.jobs AS j WHERE j.member_group_id = g.id LIMIT 1) IS NULL;

-- @put_keys
INSERT INTO outlast.keys (scope, key, bucket, job)
SELECT r.scope, r.key, r.bucket, r.job_id
FROM json_to_recordset(:rows::json) AS r (scope text, key text, bucket text, job_id uuid)
ON CONFLICT (scope, key, bucket) DO UPDATE
SET job = excluded.job;

-- @delete_keys
DELETE FROM outlast.keys AS k
USING json_to_recordset(:rows::json) AS r (scope text, key text, bucket text)
WHERE k.scope = r.scope AND k.key = r.key AND k.bucket = r.bucket;

-- @claim_slots
-- A slot without a job was run manually since.
UPDATE outlast.slots AS s
SET
  outcome = 'manual',
  actual = r.actual,
  schedule_id = r.schedule_id,
  job = r.job_id,
  reason = r.reason
FROM json_to_recordset(:rows::json) AS r (
  series text, slot_at bigint, actual bigint, schedule_id text, job_id uuid, reason text
)
WHERE s.series = r.series AND s.slot_at = r.slot_at AND s.job IS NULL AND r.job_id IS NOT NULL;

-- @put_slots
INSERT INTO outlast.slots (
  series, slot_at, outcome, planned, actual, schedule_id, job, reason
)
SELECT
  r.series, r.slot_at, r.outcome, r.planned, r.actual, r.schedule_id, r.job_id, r.reason
FROM json_to_recordset(:rows::json) AS r (
  series text, slot_at bigint, outcome text, planned bigint, actual bigint, schedule_id text,
  job_id uuid, reason text
)
ON CONFLICT (series, slot_at) DO NOTHING;

-- @mark_slots
UPDATE outlast.slots AS s
SET outcome = r.outcome
FROM json_to_recordset(:rows::json) AS r (series text, slot_at bigint, outcome text)
WHERE s.series = r.series AND s.slot_at = r.slot_at AND s.outcome <> r.outcome;

-- @delete_conflicting_schedules
-- A name may belong to another schedule by now.
DELETE FROM outlast.schedules AS s
USING json_to_recordset(:rows::json) AS r (id uuid, name text)
WHERE s.id = r.id OR s.name = r.name;

-- @put_schedules
INSERT INTO outlast.schedules (
  id, name, plan, version, enabled, created_at, updated_at, next_slot, next_trigger_at,
  last_triggered_at
)
SELECT
  r.id, r.name, r.plan::json, r.version, r.enabled, r.created_at, r.updated_at, r.next_slot,
  r.next_trigger_at, r.last_triggered_at
FROM json_to_recordset(:rows::json) AS r (
  id uuid, name text, plan text, version bigint, enabled boolean, created_at bigint,
  updated_at bigint, next_slot bigint, next_trigger_at bigint, last_triggered_at bigint
);

-- @delete_schedules
DELETE FROM outlast.schedules AS s
USING json_to_recordset(:rows::json) AS r (id uuid)
WHERE s.id = r.id;

-- @put_documents
INSERT INTO outlast.documents (kind, key, value, version, created_at, updated_at)
SELECT r.kind, r.key, r.value::json, r.version, r.created_at, r.updated_at
FROM json_to_recordset(:rows::json) AS r (
  kind text, key text, value text, version bigint, created_at bigint, updated_at bigint
)
ON CONFLICT (kind, key) DO UPDATE
SET
  value = excluded.value,
  version = excluded.version,
  created_at = excluded.created_at,
  updated_at = excluded.updated_at;

-- @delete_documents
DELETE FROM outlast.documents AS o
USING json_to_recordset(:rows::json) AS r (kind text, key text)
WHERE o.kind = r.kind AND o.key = r.key;

-- @update_params
UPDATE outlast.jobs AS j
SET params = r.params::json
FROM json_to_recordset(:rows::json) AS r (id uuid, params text)
WHERE j.id = r.id AND j.params::text <> r.params;

-- @put_jobs
INSERT INTO outlast.jobs (
  seq, id, type, name, queue, delivery, params, max_attempts, created_at, slot_at,
  start_deadline, retry_of, root, group_id, member_group_id, template_id, template_at,
  schedule_id, active_key, metadata
)
SELECT
  r.seq, r.id, r.type, r.name, r.queue, r.delivery, r.params::json, r.max_attempts, r.created_at,
  r.slot_at, r.start_deadline, r.retry_of, nullif(r.root_id, r.id), r.group_id, r.member_of,
  r.template_id, r.template_at, r.schedule_id, r.active_key, r.metadata::json
FROM json_to_recordset(:rows::json) AS r (
  seq bigint, id uuid, type text, name text, queue text, delivery text, params text,
  max_attempts integer, created_at bigint, slot_at bigint, start_deadline bigint, retry_of uuid,
  root_id uuid, group_id text, member_of uuid, template_id text, template_at bigint, schedule_id text,
  active_key text, metadata text
)
ON CONFLICT (id) DO NOTHING;

-- @delete_waiting
DELETE FROM outlast.waiting
WHERE job = ANY(ARRAY(
  SELECT (SELECT j.id FROM outlast.jobs AS j WHERE j.seq = r.seq)
  FROM json_to_recordset(:rows::json) AS r (seq bigint)
));

-- @put_waiting
INSERT INTO outlast.waiting (
  job, seq, state, queue, type, name, delivery, priority, position, available_at, created_at,
  start_deadline, token, failures, losses, member_group_id, active
)
SELECT
  j.id, j.seq, r.state, j.queue, j.type, j.name, j.delivery, r.priority, r.position,
  r.available_at, j.created_at, j.start_deadline, r.token, r.failures, r.losses, j.member_group_id,
  j.active_key IS NOT NULL
FROM json_to_recordset(:rows::json) AS r (
  id uuid, state text, priority smallint, position bigint, available_at bigint,
  token integer, failures integer, losses integer
)
CROSS JOIN LATERAL (SELECT * FROM outlast.jobs AS i WHERE i.id = r.id OFFSET 0) AS j
WHERE r.state IN ('blocked', 'scheduled', 'queued', 'retry_wait');

-- @mark_dead_letters
UPDATE outlast.ends AS e
SET state = r.state, reason = r.reason
FROM json_to_recordset(:rows::json) AS r (id uuid, state text, reason text)
WHERE e.job = r.id AND e.state <> r.state;

-- @put_ends
INSERT INTO outlast.ends (
  job, seq, state, reason, at, queue, priority, position, available_at, token, failures, losses
)
SELECT
  j.id, j.seq, r.state, r.reason, r.finished_at, j.queue, r.priority, r.position, r.available_at,
  r.token, r.failures, r.losses
FROM json_to_recordset(:rows::json) AS r (
  id uuid, state text, reason text, finished_at bigint, priority smallint, position bigint,
  available_at bigint, token integer, failures integer, losses integer
)
CROSS JOIN LATERAL (SELECT * FROM outlast.jobs AS i WHERE i.id = r.id OFFSET 0) AS j
WHERE r.state NOT IN ('blocked', 'scheduled', 'queued', 'retry_wait')
ON CONFLICT (job) DO NOTHING;

-- @end_deleted_jobs
-- A trigger allows the deletion of ended jobs only.
INSERT INTO outlast.ends (
  job, seq, state, at, queue, priority, position, available_at, token, failures, losses
)
SELECT j.id, j.seq, 'cancelled', j.created_at, j.queue, 0, 0, j.created_at, 0, 0, 0
FROM json_to_recordset(:rows::json) AS r (seq bigint)
JOIN outlast.jobs AS j ON j.seq = r.seq
ON CONFLICT (job) DO NOTHING;

-- @delete_jobs
DELETE FROM outlast.jobs AS j
USING json_to_recordset(:rows::json) AS r (seq bigint)
WHERE j.seq = r.seq
RETURNING j.id;

-- @update_runs
-- Artifacts may be attached after the end of a run.
UPDATE outlast.runs AS o
SET artifacts = nullif(r.artifacts, '[]')::json, exit_code = r.exit_code, error = r.error
FROM json_to_recordset(:rows::json) AS r (
  job_id uuid, token integer, artifacts text, exit_code bigint, error text
)
WHERE o.job = r.job_id AND o.token = r.token;

-- @put_workers
INSERT INTO outlast.workers (instance_id, boot_id)
SELECT DISTINCT r.holder, r.boot_id
FROM json_to_recordset(:rows::json) AS r (holder text, boot_id text)
ON CONFLICT DO NOTHING;

-- @put_runs
INSERT INTO outlast.runs (
  job, token, run_id, status, reason, worker, started_at, finished_at, error, result, exit_code,
  log_path, artifacts, progress
)
SELECT
  r.job_id, r.token, r.run_id, r.status, r.reason, k.id, r.started_at, r.finished_at, r.error,
  r.result::json, r.exit_code, r.log_path, nullif(r.artifacts, '[]')::json, r.progress::json
FROM json_to_recordset(:rows::json) AS r (
  job_id uuid, token integer, run_id uuid, status text, reason text, holder text, boot_id text,
  started_at bigint, finished_at bigint, error text, result text, exit_code bigint, log_path text,
  artifacts text, progress text
)
CROSS JOIN LATERAL (
  SELECT i.id FROM outlast.workers AS i
  WHERE i.instance_id = r.holder AND i.boot_id = r.boot_id
  OFFSET 0
) AS k
WHERE (SELECT 1 FROM outlast.jobs AS j WHERE j.id = r.job_id) IS NOT NULL
ON CONFLICT (job, token) DO NOTHING;

-- @put_events
INSERT INTO outlast.events (id, job, queue, at, kind, token, run_id, reason, detail)
SELECT r.id, r.job_id, r.queue, r.at, r.kind, r.token, r.run_id, r.reason, r.detail
FROM json_to_recordset(:rows::json) AS r (
  id bigint, job_id uuid, queue text, at bigint, kind text, token integer, run_id uuid,
  reason text, detail text
)
WHERE r.job_id IS NULL
  OR (SELECT 1 FROM outlast.jobs AS j WHERE j.id = r.job_id) IS NOT NULL
ON CONFLICT (id) DO NOTHING;

-- @delete_events
DELETE FROM outlast.events AS e
USING json_to_recordset(:rows::json) AS r (id bigint)
WHERE e.id = r.id;

-- @put_reservations
INSERT INTO outlast.reservations (
  seq, id, queue, job, caller, request, status, reason, reserved_at, expires_at, span, until,
  ended_at
)
SELECT
  r.seq, r.id, r.queue, r.job_id, r.caller, r.request, r.status, r.reason, r.reserved_at,
  r.expires_at, r.span, r.expires_at - :now::bigint + :mono::bigint, r.ended_at
FROM json_to_recordset(:rows::json) AS r (
  seq bigint, id uuid, queue text, job_id uuid, caller text, request text, status text,
  reason text, reserved_at bigint, expires_at bigint, span bigint, ended_at bigint
)
ORDER BY r.seq
ON CONFLICT (seq) DO UPDATE
SET
  status = excluded.status,
  reason = excluded.reason,
  expires_at = excluded.expires_at,
  span = excluded.span,
  until = excluded.until,
  ended_at = excluded.ended_at;

-- @delete_reservations
DELETE FROM outlast.reservations AS o
USING json_to_recordset(:rows::json) AS r (seq bigint)
WHERE o.seq = r.seq;

-- @raise_counters
-- Counters also rise to the numbers of stored rows.
WITH r AS MATERIALIZED (
  SELECT name, last FROM json_to_recordset(:rows::json) AS i (name text, last bigint)
)
SELECT
  setval('outlast.jobs_seq_seq', greatest(
    (SELECT last_value FROM outlast.jobs_seq_seq),
    (SELECT max(seq) FROM outlast.jobs),
    (SELECT max(r.last) FILTER (WHERE r.name = 'jobs') FROM r)
  )),
  setval('outlast.groups_seq_seq', greatest(
    (SELECT last_value FROM outlast.groups_seq_seq),
    (SELECT max(seq) FROM outlast.groups),
    (SELECT max(r.last) FILTER (WHERE r.name = 'groups') FROM r)
  )),
  setval('outlast.reservations_seq_seq', greatest(
    (SELECT last_value FROM outlast.reservations_seq_seq),
    (SELECT max(seq) FROM outlast.reservations),
    (SELECT max(r.last) FILTER (WHERE r.name = 'reservations') FROM r)
  )),
  setval('outlast.document_versions', greatest(
    (SELECT last_value FROM outlast.document_versions),
    (SELECT max(version) FROM outlast.documents),
    (SELECT max(r.last) FILTER (WHERE r.name = 'documents') FROM r)
  )),
  setval('outlast.schedule_versions', greatest(
    (SELECT last_value FROM outlast.schedule_versions),
    (SELECT max(version) FROM outlast.schedules),
    (SELECT max(r.last) FILTER (WHERE r.name = 'schedules') FROM r)
  )),
  outlast.raise_events(greatest(
    (SELECT max(id) FROM outlast.events),
    (SELECT max(r.last) FILTER (WHERE r.name = 'events') FROM r)
  ))::text;
