-- @params
-- A trigger refuses it after the first claim of the job.
UPDATE outlast.jobs SET params = :params::json WHERE id = :job::uuid;

-- @edit
-- With another priority the job gets the position of a new job.
UPDATE outlast.waiting
SET
  state = :state::text,
  available_at = coalesce(:due::bigint, available_at),
  priority = :priority::smallint,
  position = :position::bigint
WHERE job = :job::uuid;

-- @last
-- The position of a new job: in a `position` queue after the last one of its priority, else 0.
SELECT coalesce(
  (
    SELECT q.gap + greatest(
      0,
      (
        SELECT max(o.position)
        FROM outlast.waiting AS o
        WHERE o.queue = :queue::text AND o.priority = :priority::smallint AND o.position <> 0
      )
    )
    FROM outlast.queues AS q
    WHERE q.name = :queue::text AND q.ordering = 'position'
  ),
  0
);

-- @target
-- The target must wait in the same queue with the same priority; FOR UPDATE keeps it there.
SELECT w.seq
FROM outlast.waiting AS w
WHERE w.job = :target::uuid AND w.queue = :queue::text AND w.priority = :priority::smallint
FOR UPDATE;

-- @order_of
SELECT position, available_at, created_at FROM outlast.waiting WHERE job = :job::uuid;

-- @bounds
-- The lowest and the highest position.
SELECT
  (
    SELECT w.position
    FROM outlast.waiting AS w
    WHERE w.queue = :queue::text AND w.priority = :priority::smallint AND w.position <> 0
      AND w.seq <> :without::bigint
    ORDER BY w.position
    LIMIT 1
  ),
  (
    SELECT w.position
    FROM outlast.waiting AS w
    WHERE w.queue = :queue::text AND w.priority = :priority::smallint AND w.position <> 0
      AND w.seq <> :without::bigint
    ORDER BY w.position DESC
    LIMIT 1
  );

-- @before
SELECT w.seq, w.position, w.job
FROM outlast.waiting AS w
WHERE w.queue = :queue::text AND w.priority = :priority::smallint AND w.position <> 0
  AND w.seq <> :without::bigint
  AND w.position >= :bound::bigint
  AND (w.position, w.available_at, w.created_at, w.seq)
    < (:position::bigint, :available_at::bigint, :created_at::bigint, :seq::bigint)
ORDER BY w.position DESC, w.available_at DESC, w.created_at DESC, w.seq DESC
LIMIT :limit::bigint;

-- @after
SELECT w.seq, w.position, w.job
FROM outlast.waiting AS w
WHERE w.queue = :queue::text AND w.priority = :priority::smallint AND w.position <> 0
  AND w.seq <> :without::bigint
  AND w.position <= :bound::bigint
  AND (w.position, w.available_at, w.created_at, w.seq)
    > (:position::bigint, :available_at::bigint, :created_at::bigint, :seq::bigint)
ORDER BY w.position, w.available_at, w.created_at, w.seq
LIMIT :limit::bigint;

-- @unplaced
-- Each waiting state has its own index; `types` are the queued ones. The first ten bytes of the
-- claim order are priority and position: from there to the last job is one range per type.
WITH RECURSIVE types (type) AS (
  (
    SELECT w.type
    FROM outlast.waiting AS w
    WHERE w.queue = :queue::text AND w.state = 'queued'
    ORDER BY w.type
    LIMIT 1
  )
  UNION ALL
  SELECT n.type
  FROM types AS t
  CROSS JOIN LATERAL (
    SELECT w.type
    FROM outlast.waiting AS w
    WHERE w.queue = :queue::text AND w.state = 'queued' AND w.type > t.type
    ORDER BY w.type
    LIMIT 1
  ) AS n
),
last AS MATERIALIZED (
  SELECT
    w.claim_order, substring(w.claim_order FROM 1 FOR 10) AS start, w.available_at, w.created_at,
    w.seq
  FROM outlast.waiting AS w
  WHERE w.job = :last::uuid
)
SELECT u.seq, u.job
FROM (
  SELECT q.seq, q.job, q.claim_order
  FROM types AS t
  CROSS JOIN LATERAL (
    SELECT i.seq, i.job, i.claim_order
    FROM outlast.waiting AS i
    WHERE i.queue = :queue::text AND i.type = t.type AND i.state = 'queued'
      AND i.claim_order >= (SELECT start FROM last)
      AND i.claim_order <= (SELECT claim_order FROM last)
    OFFSET 0
  ) AS q
  UNION ALL
  SELECT d.seq, d.job, d.claim_order
  FROM outlast.waiting AS d
  WHERE d.state IN ('scheduled', 'retry_wait')
    AND d.available_at <= (SELECT available_at FROM last)
    AND d.queue = :queue::text AND d.priority = :priority::smallint AND d.position = 0
    AND d.claim_order <= (SELECT claim_order FROM last)
  UNION ALL
  SELECT b.seq, b.job, b.claim_order
  FROM outlast.waiting AS b
  WHERE b.state = 'blocked' AND b.position = 0
    AND b.queue = :queue::text AND b.priority = :priority::smallint
    AND b.available_at <= (SELECT available_at FROM last)
    AND b.claim_order <= (SELECT claim_order FROM last)
) AS u
WHERE u.seq <> :without::bigint
ORDER BY u.claim_order;

-- @set
-- By id; a join could be planned as a scan.
UPDATE outlast.waiting
SET position = (:positions::jsonb ->> job::text)::bigint
WHERE job = ANY(:jobs::uuid[]);

-- @renumber
-- A `position` queue: every waiting job.
UPDATE outlast.waiting AS w
SET position = p.place
FROM (
  SELECT
    e.job,
    :gap::bigint * row_number() OVER (PARTITION BY e.priority ORDER BY e.claim_order) AS place
  FROM outlast.waiting AS e
  WHERE e.queue = :queue::text
) AS p
WHERE w.job = p.job AND w.position <> p.place;

-- @renumber_placed
-- A `scheduled` queue: the moved jobs, on their side of 0.
UPDATE outlast.waiting AS w
SET position = p.place
FROM (
  SELECT
    e.job,
    CASE
      WHEN e.position > 0 THEN :gap::bigint * row_number() OVER (
        PARTITION BY e.priority, e.position > 0 ORDER BY e.claim_order
      )
      ELSE -:gap::bigint * row_number() OVER (
        PARTITION BY e.priority, e.position > 0 ORDER BY e.claim_order DESC
      )
    END AS place
  FROM outlast.waiting AS e
  WHERE e.queue = :queue::text AND e.position <> 0
) AS p
WHERE w.job = p.job AND w.position <> p.place;
