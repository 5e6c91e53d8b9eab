-- `LATERAL (... OFFSET 0)` forces one index lookup per row. Without it the planner would flatten
-- the view of a job, which has more joins than it reorders, and scan tables that were empty when
-- planned.

-- @get
SELECT s.*
FROM unnest(:ids::uuid[]) AS i (id)
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = i.id OFFSET 0) AS s;

-- @peek
-- The index of the claim order is by type: list the waiting types, then the first jobs of each,
-- merged with those that the next claim would promote. The direct job of an active reservation is
-- not part of the order.
WITH RECURSIVE direct (job) AS (
  SELECT r.job FROM outlast.reservations AS r
  WHERE r.queue = :queue::text AND r.status = 'active'
),
types (type) AS (
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
)
SELECT s.*
FROM (
  SELECT n.job, n.claim_order
  FROM (
    SELECT q.job, q.claim_order
    FROM types AS t
    CROSS JOIN LATERAL (
      SELECT i.job, i.claim_order
      FROM outlast.waiting AS i
      WHERE i.queue = :queue::text AND i.type = t.type AND i.state = 'queued'
        AND i.job IS DISTINCT FROM (SELECT job FROM direct)
      ORDER BY i.claim_order
      LIMIT :limit::bigint
    ) AS q
    UNION ALL
    SELECT d.job, d.claim_order
    FROM (
      SELECT p.job, p.queue, p.claim_order
      FROM outlast.waiting AS p
      WHERE p.state IN ('scheduled', 'retry_wait')
        AND p.available_at <= (SELECT coalesce(:now::bigint, outlast.micros()))
      ORDER BY p.available_at, p.seq
      LIMIT :promoted::bigint
    ) AS d
    WHERE d.queue = :queue::text AND d.job IS DISTINCT FROM (SELECT job FROM direct)
  ) AS n
  ORDER BY n.claim_order
  LIMIT :limit::bigint
) AS w
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = w.job OFFSET 0) AS s
ORDER BY w.claim_order;

-- @find
-- From the newest down until the page is full. A detached job matches no state.
SELECT s.*
FROM (
  SELECT j.id, j.seq
  FROM outlast.jobs AS j
  WHERE j.seq < coalesce(:before::bigint, 9223372036854775807)
    AND (:queue::text IS NULL OR j.queue = :queue::text)
    AND (:type::text IS NULL OR j.type = :type::text)
    AND (
      :states::text[] IS NULL
      OR coalesce(
        (SELECT e.state FROM outlast.ends AS e WHERE e.job = j.id),
        (SELECT w.state FROM outlast.waiting AS w WHERE w.job = j.id),
        (SELECT 'running' FROM outlast.open_runs AS o WHERE o.job = j.id)
      ) = ANY(:states::text[])
    )
  ORDER BY j.seq DESC
  LIMIT :limit::bigint
) AS j
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = j.id OFFSET 0) AS s
ORDER BY j.seq DESC;

-- @find_live
-- By state table: the cost depends on the matching jobs, not on all stored ones.
SELECT s.*
FROM (
  SELECT found.job, found.seq
  FROM (
    (
      SELECT w.job, w.seq
      FROM outlast.waiting AS w
      WHERE w.state = ANY(:states::text[])
        AND :states::text[] && ARRAY['queued', 'scheduled', 'retry_wait', 'blocked']
        AND w.seq < coalesce(:before::bigint, 9223372036854775807)
        AND (:queue::text IS NULL OR w.queue = :queue::text)
        AND (:type::text IS NULL OR w.type = :type::text)
        AND (
          :labels::text[] IS NULL
          OR NOT EXISTS (
            SELECT 1 FROM unnest(:labels::text[]) AS l (label)
            WHERE NOT EXISTS (
              SELECT 1 FROM outlast.labels AS h WHERE h.label = l.label AND h.seq = w.seq
            )
          )
        )
      ORDER BY w.seq DESC
      LIMIT :limit::bigint
    )
    UNION ALL
    (
      SELECT o.job, o.seq
      FROM outlast.open_runs AS o
      WHERE 'running' = ANY(:states::text[])
        AND o.seq < coalesce(:before::bigint, 9223372036854775807)
        AND (:queue::text IS NULL OR o.queue = :queue::text)
        AND (
          :type::text IS NULL
          OR :type::text = (SELECT j.type FROM outlast.jobs AS j WHERE j.id = o.job)
        )
        AND (
          :labels::text[] IS NULL
          OR NOT EXISTS (
            SELECT 1 FROM unnest(:labels::text[]) AS l (label)
            WHERE NOT EXISTS (
              SELECT 1 FROM outlast.labels AS h WHERE h.label = l.label AND h.seq = o.seq
            )
          )
        )
      ORDER BY o.seq DESC
      LIMIT :limit::bigint
    )
    UNION ALL
    SELECT e.job, e.seq
    FROM unnest(:states::text[]) AS t (state)
    CROSS JOIN LATERAL (
      SELECT i.job, i.seq
      FROM outlast.ends AS i
      WHERE i.state = t.state AND i.state <> 'succeeded'
        AND i.seq < coalesce(:before::bigint, 9223372036854775807)
        AND (:queue::text IS NULL OR i.queue = :queue::text)
        AND (
          :type::text IS NULL
          OR :type::text = (SELECT j.type FROM outlast.jobs AS j WHERE j.id = i.job)
        )
        AND (
          :labels::text[] IS NULL
          OR NOT EXISTS (
            SELECT 1 FROM unnest(:labels::text[]) AS l (label)
            WHERE NOT EXISTS (
              SELECT 1 FROM outlast.labels AS h WHERE h.label = l.label AND h.seq = i.seq
            )
          )
        )
      ORDER BY i.seq DESC
      LIMIT :limit::bigint
    ) AS e
  ) AS found
  ORDER BY found.seq DESC
  LIMIT :limit::bigint
) AS f
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = f.job OFFSET 0) AS s
ORDER BY f.seq DESC;

-- @label_counts
-- How many jobs have each label, counted up to :most.
SELECT l.label, (
  SELECT count(*)
  FROM (
    SELECT 1 FROM outlast.labels AS h WHERE h.label = l.label ORDER BY h.seq LIMIT :most::bigint
  ) AS sample
)
FROM unnest(:labels::text[]) AS l (label);

-- @find_label
-- From the newest job with :label down until the page is full. A detached job matches no state.
SELECT s.*
FROM (
  SELECT n.job, n.seq
  FROM outlast.labels AS n
  CROSS JOIN LATERAL (SELECT * FROM outlast.jobs AS i WHERE i.id = n.job OFFSET 0) AS j
  WHERE n.label = :label::text
    AND n.seq < coalesce(:before::bigint, 9223372036854775807)
    AND (:queue::text IS NULL OR j.queue = :queue::text)
    AND (:type::text IS NULL OR j.type = :type::text)
    AND (
      :states::text[] IS NULL
      OR coalesce(
        (SELECT e.state FROM outlast.ends AS e WHERE e.job = n.job),
        (SELECT w.state FROM outlast.waiting AS w WHERE w.job = n.job),
        (SELECT 'running' FROM outlast.open_runs AS o WHERE o.job = n.job)
      ) = ANY(:states::text[])
    )
    AND (
      :labels::text[] IS NULL
      OR NOT EXISTS (
        SELECT 1 FROM unnest(:labels::text[]) AS l (label)
        WHERE NOT EXISTS (
          SELECT 1 FROM outlast.labels AS h WHERE h.label = l.label AND h.seq = n.seq
        )
      )
    )
  ORDER BY n.seq DESC
  LIMIT :limit::bigint
) AS f
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = f.job OFFSET 0) AS s
ORDER BY f.seq DESC;

-- @find_id
SELECT s.*
FROM (
  SELECT j.id, j.seq
  FROM outlast.jobs AS j
  WHERE j.id BETWEEN :first::uuid AND :last::uuid
    AND j.seq < coalesce(:before::bigint, 9223372036854775807)
) AS j
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = j.id OFFSET 0) AS s
ORDER BY j.seq DESC;

-- @find_key
SELECT s.*
FROM (
  SELECT DISTINCT c.id, c.seq
  FROM outlast.keys AS k
  CROSS JOIN LATERAL (
    SELECT j.id, j.seq FROM outlast.jobs AS j WHERE j.id = k.job
    UNION ALL
    SELECT j.id, j.seq FROM outlast.jobs AS j WHERE j.root = k.job
  ) AS c
  WHERE k.scope IN ('key', 'active', 'window', 'debounce') AND k.key = :key::text
    AND c.seq < coalesce(:before::bigint, 9223372036854775807)
) AS j
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = j.id OFFSET 0) AS s
ORDER BY j.seq DESC;

-- @allow_full_scans
-- For statements that read whole tables: sequential scans and hash joins.
SELECT
  set_config('enable_seqscan', 'on', true),
  set_config('enable_hashjoin', 'on', true);

-- @counts
SELECT queue, state, count(*) FROM outlast.waiting GROUP BY queue, state
UNION ALL
SELECT queue, 'running', count(*) FROM outlast.open_runs GROUP BY queue
UNION ALL
SELECT queue, state, count(*) FROM outlast.ends GROUP BY queue, state;

-- @chain
SELECT s.*
FROM (SELECT coalesce(j.root, j.id) AS root FROM outlast.jobs AS j WHERE j.id = :id::uuid) AS r
CROSS JOIN LATERAL (
  SELECT j.id, j.seq FROM outlast.jobs AS j WHERE j.id = r.root
  UNION ALL
  SELECT j.id, j.seq FROM outlast.jobs AS j WHERE j.root = r.root
) AS c
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = c.id OFFSET 0) AS s
ORDER BY c.seq;
