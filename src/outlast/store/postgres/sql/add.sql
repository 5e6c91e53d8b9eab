-- @uniform
-- Jobs that differ only in id and params. A `position` queue stores none: its positions are
-- assigned under the queue's lock. A known id violates the primary key, and no job is stored. Ids
-- and params are passed as one text each, because a driver encodes every element of an array.
WITH t AS MATERIALIZED (
  SELECT c.now, coalesce(:at::bigint, c.now + :delay::bigint, c.now) AS due
  FROM (SELECT coalesce(:now::bigint, outlast.micros()) AS now) AS c
  WHERE CASE
    WHEN EXISTS (SELECT 1 FROM outlast.transfer_status) THEN outlast.require_open(c.now)
    ELSE true
  END
),
n AS MATERIALIZED (
  SELECT u.id::uuid AS id, u.params::json AS params, nextval('outlast.jobs_seq_seq') AS seq
  FROM unnest(string_to_array(:ids::text, ','), string_to_array(:params::text, :separator::text))
    AS u (id, params)
  WHERE NOT EXISTS (
    SELECT 1 FROM outlast.queues WHERE name = :queue::text AND ordering = 'position'
  )
),
j AS (
  INSERT INTO outlast.jobs (
    id, seq, type, name, queue, delivery, params, max_attempts, created_at, start_deadline,
    group_id, template_id, template_at, schedule_id, metadata
  )
  SELECT
    n.id, n.seq, :type::text, :name::text, :queue::text, :delivery::text, n.params,
    :max_attempts::integer, t.now, t.due + :within::bigint,
    :group_id::text, :template_id::text, :template_at::bigint, :schedule_id::text,
    :metadata::json
  FROM n, t
),
w AS (
  INSERT INTO outlast.waiting (
    job, seq, state, queue, type, name, delivery, priority, position,
    available_at, created_at, start_deadline, token, failures, losses
  )
  SELECT
    n.id, n.seq, CASE WHEN t.due <= t.now THEN 'queued' ELSE 'scheduled' END,
    :queue::text, :type::text, :name::text, :delivery::text, :priority::smallint, 0,
    t.due, t.now, t.due + :within::bigint, 0, 0, 0
  FROM n, t
)
SELECT
  s.stored,
  CASE
    WHEN s.stored > 0 AND :channel::text IS NOT NULL
      THEN pg_notify(:channel::text, :queue::text)
  END
FROM t, (SELECT count(*) AS stored FROM n) AS s;

-- @mixed
-- Jobs of any kind, with their keys and slots. A slot row without a job becomes a manual run; if
-- another job has claimed the slot since the lookup, a trigger raises a unique violation. :placed
-- means that positions were assigned under the queues' locks; without it no job is stored if one is
-- for a `position` queue.
WITH t AS MATERIALIZED (
  SELECT c.now
  FROM (SELECT coalesce(:now::bigint, outlast.micros()) AS now) AS c
  WHERE CASE
    WHEN EXISTS (SELECT 1 FROM outlast.transfer_status) THEN outlast.require_open(c.now)
    ELSE true
  END
),
n AS MATERIALIZED (
  SELECT
    u.id::uuid AS id, u.params::json AS params, nextval('outlast.jobs_seq_seq') AS seq,
    u.type, u.name, u.queue, u.delivery, u.max_attempts, u.priority,
    coalesce(u.position, 0) AS position, t.now,
    coalesce(u.at, t.now + u.delay, greatest(t.now, u.slot_at)) AS due, u.slot_at, u.within,
    u.retry_of::uuid AS retry_of, u.root::uuid AS root, u.group_id,
    u.member_group_id::uuid AS member_group_id,
    u.template_id, u.template_at, u.schedule_id, u.active_key, u.metadata::json AS metadata
  FROM
    t,
    unnest(
      :ids::text[], :params::text[], :types::text[], :names::text[], :queues::text[],
      :deliveries::text[], :max_attempts::integer[], :priorities::smallint[],
      :positions::bigint[], :ats::bigint[], :delays::bigint[], :slots::bigint[],
      :withins::bigint[], :retries::text[], :roots::text[], :group_ids::text[],
      :member_group_ids::text[],
      :template_ids::text[], :template_ats::bigint[], :schedule_ids::text[], :active_keys::text[],
      :metadatas::text[]
    ) AS u (
      id, params, type, name, queue, delivery, max_attempts, priority, position, at, delay,
      slot_at, within, retry_of, root, group_id, member_group_id, template_id, template_at,
      schedule_id, active_key, metadata
    )
  WHERE :placed::boolean OR NOT EXISTS (
    SELECT 1 FROM outlast.queues WHERE name = ANY(:queues::text[]) AND ordering = 'position'
  )
),
j AS (
  INSERT INTO outlast.jobs (
    id, seq, type, name, queue, delivery, params, max_attempts, created_at, slot_at,
    start_deadline, retry_of, root, group_id, member_group_id, template_id, template_at,
    schedule_id, active_key, metadata
  )
  SELECT
    n.id, n.seq, n.type, n.name, n.queue, n.delivery, n.params, n.max_attempts, n.now, n.slot_at,
    coalesce(n.slot_at, n.due) + n.within, n.retry_of, n.root, n.group_id, n.member_group_id,
    n.template_id, n.template_at, n.schedule_id, n.active_key, n.metadata
  FROM n
),
w AS (
  INSERT INTO outlast.waiting (
    job, seq, state, queue, type, name, delivery, priority, position, available_at, created_at,
    start_deadline, token, failures, losses, member_group_id, active
  )
  SELECT
    n.id, n.seq,
    CASE
      WHEN n.member_group_id IS NOT NULL THEN 'blocked'
      WHEN n.due <= n.now THEN 'queued'
      ELSE 'scheduled'
    END,
    n.queue, n.type, n.name, n.delivery, n.priority, n.position, n.due, n.now,
    coalesce(n.slot_at, n.due) + n.within, 0, 0, 0, n.member_group_id,
    n.active_key IS NOT NULL
  FROM n
),
s AS (
  INSERT INTO outlast.slots AS o (series, slot_at, outcome, planned, actual, schedule_id, job)
  SELECT u.series, u.slot_at, 'manual', u.slot_at, t.now, u.schedule_id, u.job::uuid
  FROM
    t,
    unnest(
      :slot_series::text[], :slot_ats::bigint[], :slot_schedules::text[], :slot_jobs::text[]
    ) AS u (series, slot_at, schedule_id, job)
  WHERE EXISTS (SELECT 1 FROM n)
  ON CONFLICT (series, slot_at) DO UPDATE
  SET outcome = 'manual', actual = excluded.actual, job = excluded.job, reason = o.outcome
),
k AS (
  INSERT INTO outlast.keys (scope, key, bucket, job, expires_at)
  SELECT u.scope, u.key, u.bucket, u.job::uuid, t.now + u.span
  FROM
    t,
    unnest(
      :key_scopes::text[], :keys::text[], :buckets::text[], :key_jobs::text[], :key_spans::bigint[]
    ) AS u (scope, key, bucket, job, span)
  WHERE EXISTS (SELECT 1 FROM n)
),
q AS (
  SELECT string_agg(DISTINCT n.queue, ' ') AS queues
  FROM n
  WHERE n.member_group_id IS NULL
)
SELECT
  (SELECT count(*) FROM n),
  q.queues,
  CASE
    WHEN q.queues IS NOT NULL AND :channel::text IS NOT NULL
      THEN pg_notify(
        :channel::text, CASE WHEN octet_length(q.queues) <= 7000 THEN q.queues ELSE '' END
      )
  END
FROM q;

-- @position_queues
-- Which of these queues assign positions.
SELECT name FROM outlast.queues WHERE name = ANY(:queues::text[]) AND ordering = 'position';

-- @lock_predecessors
-- FOR KEY SHARE keeps the retried jobs from being deleted until the commit.
SELECT id FROM outlast.jobs WHERE id = ANY(:ids::text[]::uuid[]) ORDER BY id FOR KEY SHARE;

-- @existing
-- Rows that new jobs conflict with or depend on: known ids, slots and keys in use (a slot row
-- without a job is free), retried jobs, and last positions of `position` queues. LIMIT forces index
-- lookups: a plan made while a table was empty would scan it.
SELECT 'known' AS what, u.id AS a, NULL AS b, NULL AS c, NULL AS d
FROM unnest(:ids::text[]) AS u (id)
CROSS JOIN LATERAL (SELECT 1 FROM outlast.jobs WHERE id = u.id::uuid LIMIT 1) AS j
UNION ALL
SELECT 'slot', u.series, u.slot_at::text, '', s.job::text
FROM unnest(:slot_series::text[], :slot_ats::bigint[]) AS u (series, slot_at)
CROSS JOIN LATERAL (
  SELECT job FROM outlast.slots WHERE series = u.series AND slot_at = u.slot_at LIMIT 1
) AS s
UNION ALL
SELECT u.scope, u.key, u.bucket, '', k.job::text
FROM unnest(:key_scopes::text[], :keys::text[], :buckets::text[]) AS u (scope, key, bucket)
CROSS JOIN LATERAL (
  SELECT job FROM outlast.keys
  WHERE scope = u.scope AND key = u.key AND bucket = u.bucket
  LIMIT 1
) AS k
UNION ALL
SELECT
  'predecessor', u.id, j.root::text,
  (SELECT 'ended' FROM outlast.ends AS e WHERE e.job = u.id::uuid),
  (SELECT f.id::text FROM outlast.jobs AS f WHERE f.retry_of = u.id::uuid)
FROM unnest(:predecessors::text[]) AS u (id)
CROSS JOIN LATERAL (
  SELECT coalesce(root, id) AS root FROM outlast.jobs WHERE id = u.id::uuid LIMIT 1
) AS j
UNION ALL
SELECT
  'position', q.name, u.priority::text, q.gap::text,
  greatest(
    0,
    (
      SELECT max(w.position) FROM outlast.waiting AS w
      WHERE w.queue = q.name AND w.priority = u.priority AND w.position <> 0
    )
  )::text
FROM unnest(:queues::text[], :priorities::smallint[]) AS u (queue, priority)
JOIN outlast.queues AS q ON q.name = u.queue AND q.ordering = 'position';

-- @end_window
-- The key is free after its end, or after the first claim of its job. A repeated enqueue finds the
-- job that took its params. LIMIT forces index lookups, as above.
DELETE FROM outlast.keys AS k
WHERE k.scope = :scope::text AND k.key = :key::text AND k.bucket = :bucket::text
  AND NOT (k.scope = 'window' AND k.expires_at > :now::bigint)
  AND NOT (
    k.scope = 'debounce' AND (
      SELECT true FROM outlast.waiting AS w WHERE w.job = k.job AND w.token = 0 LIMIT 1
    ) IS NOT NULL
  )
  AND (
    SELECT true FROM outlast.events AS e
    WHERE e.job = k.job AND e.kind = 'edited' AND e.detail = :id::text
    LIMIT 1
  ) IS NULL;

-- @was_replaced
-- An earlier attempt of this enqueue replaced the params of the job.
SELECT EXISTS (
  SELECT 1 FROM outlast.events AS e
  WHERE e.job = :holder::uuid AND e.kind = 'edited' AND e.detail = :id::text
);

-- @record_retries
-- An event of the retried job, in the transaction that stores the new one.
INSERT INTO outlast.events (job, at, kind, token, detail)
SELECT e.job, :now::bigint, 'retried', e.token, u.id
FROM unnest(:ids::text[], :retries::text[]) AS u (id, retry_of)
JOIN outlast.ends AS e ON e.job = u.retry_of::uuid
ORDER BY e.job;
