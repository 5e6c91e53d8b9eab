-- @params
-- A trigger refuses it for a job that was ever claimed.
UPDATE outlast_jobs
SET params = :params
WHERE seq IN (SELECT job FROM temp.outlast_changes WHERE ok);

-- @edit
-- With another priority it gets the place of a new job: in a `position` queue behind the others.
UPDATE outlast_waiting
SET
  state = c.to_state,
  available_at = coalesce(:due, outlast_waiting.available_at),
  priority = coalesce(:priority, outlast_waiting.priority),
  position = CASE
    WHEN coalesce(:priority, outlast_waiting.priority) = outlast_waiting.priority
      THEN outlast_waiting.position
    ELSE coalesce(
      (
        SELECT q.gap + max(
          0,
          coalesce(
            (
              SELECT max(o.position) FROM outlast_waiting AS o INDEXED BY outlast_waiting_place
              WHERE o.queue = c.queue AND o.priority = :priority AND o.position <> 0
            ),
            0
          )
        )
        FROM outlast_queues AS q
        WHERE q.name = c.queue AND q.ordering = 'position'
      ),
      0
    )
  END
FROM temp.outlast_changes AS c
WHERE c.ok AND outlast_waiting.job = c.job;

-- @check_target
-- Whom it goes beside must still wait, in the same queue and with the same priority.
UPDATE temp.outlast_changes AS c
SET ok = 0
WHERE c.ok AND NOT EXISTS (
  SELECT 1
  FROM outlast_jobs AS j
  CROSS JOIN outlast_waiting AS t ON t.job = j.seq
  WHERE j.id = :target AND t.queue = c.queue AND t.priority = c.priority AND t.job <> c.job
);

-- @subject
SELECT c.job, t.seq, c.queue, c.priority, coalesce(q.gap, :gap)
FROM temp.outlast_changes AS c
LEFT JOIN outlast_jobs AS t ON t.id = :target
LEFT JOIN outlast_queues AS q ON q.name = c.queue
WHERE c.ok;

-- @spot
SELECT position, available_at, created_at FROM outlast_waiting WHERE job = :job;

-- @lowest
SELECT position FROM outlast_waiting INDEXED BY outlast_waiting_place
WHERE queue = :queue AND priority = :priority AND position <> 0 AND job <> :without
ORDER BY position
LIMIT 1;

-- @highest
SELECT position FROM outlast_waiting INDEXED BY outlast_waiting_place
WHERE queue = :queue AND priority = :priority AND position <> 0 AND job <> :without
ORDER BY position DESC
LIMIT 1;

-- @before
SELECT job, position FROM outlast_waiting INDEXED BY outlast_waiting_place
WHERE queue = :queue AND priority = :priority AND position <> 0 AND job <> :without
  AND position >= :bound
  AND (position, available_at, created_at, job) < (:position, :available_at, :created_at, :job)
ORDER BY position DESC, available_at DESC, created_at DESC, job DESC
LIMIT :limit;

-- @after
SELECT job, position FROM outlast_waiting INDEXED BY outlast_waiting_place
WHERE queue = :queue AND priority = :priority AND position <> 0 AND job <> :without
  AND position <= :bound
  AND (position, available_at, created_at, job) > (:position, :available_at, :created_at, :job)
ORDER BY position, available_at, created_at, job
LIMIT :limit;

-- @unplaced
-- Each waiting state has an index of its own; `types` are those that are queued. Jobs stored by one
-- call share both times, and there may be many: hence those due with the last one apart.
WITH RECURSIVE types (type) AS (
  SELECT min(type) FROM outlast_waiting WHERE queue = :queue AND state = 'queued'
  UNION ALL
  SELECT (
    SELECT min(w.type) FROM outlast_waiting AS w
    WHERE w.queue = :queue AND w.state = 'queued' AND w.type > types.type
  )
  FROM types
  WHERE types.type IS NOT NULL
)
SELECT job
FROM (
  SELECT q.job, q.available_at, q.created_at
  FROM types AS t
  CROSS JOIN outlast_waiting AS q INDEXED BY outlast_waiting_ready
    ON q.queue = :queue AND q.type = t.type AND q.state = 'queued'
    AND q.priority = :priority AND q.position = 0 AND q.available_at < :available_at
  UNION ALL
  SELECT e.job, e.available_at, e.created_at
  FROM types AS t
  CROSS JOIN outlast_waiting AS e INDEXED BY outlast_waiting_ready
    ON e.queue = :queue AND e.type = t.type AND e.state = 'queued'
    AND e.priority = :priority AND e.position = 0
    AND e.available_at = :available_at AND e.created_at < :created_at
  UNION ALL
  SELECT a.job, a.available_at, a.created_at
  FROM types AS t
  CROSS JOIN outlast_waiting AS a INDEXED BY outlast_waiting_ready
    ON a.queue = :queue AND a.type = t.type AND a.state = 'queued'
    AND a.priority = :priority AND a.position = 0
    AND a.available_at = :available_at AND a.created_at = :created_at AND a.job <= :job
  UNION ALL
  SELECT d.job, d.available_at, d.created_at
  FROM outlast_waiting AS d INDEXED BY outlast_waiting_due
  WHERE d.state IN ('scheduled', 'retry_wait') AND d.available_at <= :available_at
    AND d.queue = :queue AND d.priority = :priority AND d.position = 0
    AND (d.available_at, d.created_at, d.job) <= (:available_at, :created_at, :job)
  UNION ALL
  SELECT b.job, b.available_at, b.created_at
  FROM outlast_waiting AS b INDEXED BY outlast_waiting_blocked
  WHERE b.state = 'blocked' AND b.position = 0
    AND b.queue = :queue AND b.priority = :priority
    AND (b.available_at, b.created_at, b.job) <= (:available_at, :created_at, :job)
)
WHERE job <> :without
ORDER BY available_at, created_at, job;

-- @write
UPDATE outlast_waiting
SET position = p.value ->> 1
FROM json_each(:places) AS p
WHERE outlast_waiting.job = p.value ->> 0;

-- @renumber
-- A `position` queue: everybody who waits.
UPDATE outlast_waiting
SET position = p.place
FROM (
  SELECT
    w.job,
    :gap * row_number() OVER (
      PARTITION BY w.priority ORDER BY w.position, w.available_at, w.created_at, w.job
    ) AS place
  FROM outlast_waiting AS w
  WHERE w.queue = :queue
) AS p
WHERE outlast_waiting.job = p.job AND outlast_waiting.position <> p.place;

-- @renumber_placed
-- A `scheduled` queue: those that were put somewhere, on their side of 0.
UPDATE outlast_waiting
SET position = p.place
FROM (
  SELECT
    w.job,
    CASE
      WHEN w.position > 0 THEN :gap * row_number() OVER (
        PARTITION BY w.priority, w.position > 0
        ORDER BY w.position, w.available_at, w.created_at, w.job
      )
      ELSE -:gap * row_number() OVER (
        PARTITION BY w.priority, w.position > 0
        ORDER BY w.position DESC, w.available_at DESC, w.created_at DESC, w.job DESC
      )
    END AS place
  FROM outlast_waiting AS w INDEXED BY outlast_waiting_place
  WHERE w.queue = :queue AND w.position <> 0
) AS p
WHERE outlast_waiting.job = p.job AND outlast_waiting.position <> p.place;

-- @renumbered
INSERT INTO outlast_events (queue, at, kind, token, detail)
VALUES (:queue, :now, :kind, 0, :detail);
