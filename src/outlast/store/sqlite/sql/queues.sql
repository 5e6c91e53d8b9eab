-- @set
INSERT INTO outlast_queues (name, ordering, gap, concurrency)
VALUES (:name, :ordering, :gap, :concurrency)
ON CONFLICT (name) DO UPDATE SET
  ordering = excluded.ordering,
  gap = excluded.gap,
  concurrency = excluded.concurrency;

-- @get
SELECT name, ordering, gap, concurrency, paused_at, pause_reason, resume_at
FROM outlast_queues
WHERE name = :name;

-- @all
SELECT name, ordering, gap, concurrency, paused_at, pause_reason, resume_at
FROM outlast_queues
ORDER BY name;

-- @pause
INSERT INTO outlast_queues (name, ordering, gap, paused_at, pause_reason, resume_at)
VALUES (:name, :ordering, :gap, :now, :reason, :until)
ON CONFLICT (name) DO UPDATE SET
  paused_at = excluded.paused_at,
  pause_reason = excluded.pause_reason,
  resume_at = excluded.resume_at;

-- @resume
-- One whose time has passed is over already.
UPDATE outlast_queues
SET paused_at = NULL, pause_reason = NULL, resume_at = NULL
WHERE name = :name AND paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > :now);

-- @record_event
INSERT INTO outlast_events (queue, at, kind, token, reason, detail)
VALUES (:name, :now, :kind, 0, :reason, :detail);
