-- @lock
-- Advisory locks until the transaction ends, acquired in one order, so that no two transactions
-- deadlock. The schema's name is part of the key.
SELECT pg_advisory_xact_lock(l.key)
FROM (
  SELECT DISTINCT hashtextextended('outlast.queue ' || n.name, 0) AS key
  FROM unnest(:names::text[]) AS n (name)
  ORDER BY key
) AS l;

-- @wait_for_claims
-- SHARE mode waits for claims in progress, which do not know the new limit, pause or worker, and
-- blocks new ones until the commit: a later count of open runs includes their runs. A statement
-- locks its tables before it takes its snapshot, so a blocked claim sees the commit.
LOCK TABLE outlast.open_runs IN SHARE MODE;

-- @set
INSERT INTO outlast.queues (name, ordering, gap, concurrency)
VALUES (:name::text, :ordering::text, :gap::integer, :concurrency::integer)
ON CONFLICT (name) DO UPDATE SET
  ordering = excluded.ordering,
  gap = excluded.gap,
  concurrency = excluded.concurrency;

-- @get
SELECT
  name, ordering, gap, concurrency, paused_at, pause_reason, resume_at,
  coalesce(:now::bigint, outlast.micros())
FROM outlast.queues
WHERE name = :name::text;

-- @all
SELECT
  name, ordering, gap, concurrency, paused_at, pause_reason, resume_at,
  coalesce(:now::bigint, outlast.micros())
FROM outlast.queues
ORDER BY name;

-- @pause
INSERT INTO outlast.queues (name, ordering, gap, paused_at, pause_reason, resume_at)
VALUES (
  :name::text, :ordering::text, :gap::integer, :now::bigint, :reason::text, :until::bigint
)
ON CONFLICT (name) DO UPDATE SET
  paused_at = excluded.paused_at,
  pause_reason = excluded.pause_reason,
  resume_at = excluded.resume_at;

-- @resume
-- A pause whose time has passed has ended already.
UPDATE outlast.queues
SET paused_at = NULL, pause_reason = NULL, resume_at = NULL
WHERE name = :name::text AND paused_at IS NOT NULL
  AND (resume_at IS NULL OR resume_at > :now::bigint);

-- @record_event
INSERT INTO outlast.events (queue, at, kind, token, reason, detail)
VALUES (:name::text, :now::bigint, :kind::text, 0, :reason::text, :detail::text);
