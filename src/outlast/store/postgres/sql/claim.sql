-- @backlog
-- The queue gate, and the claim itself if the gate is open: one statement, so that the waiting row
-- is deleted and the run opened in one commit. It always returns one row. Each type has its own
-- index range. With several types, the number of jobs per type is first counted without locks, so
-- that no job is locked that is not claimed; at least one job of each type is locked, because the
-- counted ones may be claimed meanwhile. Beyond :limit only prefetchable jobs (`lease`, never lost,
-- two attempts left) are claimed, hence two ranges per type. :gated means that the caller holds the queue's lock and
-- has checked the gate; :only is the job of the reservation. A floor is the claim order up to which
-- this worker has claimed everything: the scan skips it with its dead rows, except for higher
-- priorities. With :limit 0 the floor covers prefetchable jobs only. If the scan took more than
-- :slow seconds, the last claim orders are returned; the durations of the scan and of the statement
-- always are. A claim of nothing reads when the next job becomes due, of the next :due_seen ones.
-- With a :count the jobs that are left are counted up to it, as the statement's snapshot has them.
WITH gate AS MATERIALIZED (
  SELECT
    coalesce(q.paused_at IS NOT NULL AND (q.resume_at IS NULL OR q.resume_at > c.now), false)
      AS is_paused,
    q.concurrency,
    EXISTS (
      SELECT 1 FROM outlast.reservations AS r WHERE r.queue = :queue::text AND r.status = 'active'
    ) AS is_reserved,
    NOT :promoted::boolean AND EXISTS (
      SELECT 1 FROM outlast.waiting AS w
      WHERE w.state IN ('scheduled', 'retry_wait') AND w.available_at <= c.now
    ) AS is_due,
    (
      SELECT k.id FROM outlast.workers AS k
      WHERE k.instance_id = :instance::text AND k.boot_id = :boot::text
    ) AS worker,
    c.now
  FROM (SELECT coalesce(:now::bigint, outlast.micros()) AS now) AS c
  LEFT JOIN outlast.queues AS q ON q.name = :queue::text
  WHERE CASE
    WHEN EXISTS (SELECT 1 FROM outlast.transfer_status) THEN outlast.require_open(c.now)
    ELSE true
  END  -- a store in transfer accepts no claims
),
open_gate AS MATERIALIZED (
  SELECT g.now, g.worker
  FROM gate AS g
  WHERE g.worker IS NOT NULL
    AND (
      :gated::boolean
      OR NOT g.is_paused AND g.concurrency IS NULL AND NOT g.is_reserved AND NOT g.is_due
    )
),
ranges AS MATERIALIZED (
  SELECT t.type, s.low, s.high, d.now
  FROM open_gate AS d
  CROSS JOIN unnest(:types::text[], :floors::bytea[]) AS t (type, floor)
  CROSS JOIN LATERAL (
    VALUES (''::bytea, substr(t.floor, 1, 2)), (t.floor, '\xffffffffffffffffffffffff'::bytea)
  ) AS s (low, high)
  WHERE s.low < s.high AND :only::uuid IS NULL
),
shares AS MATERIALIZED (
  SELECT s.type,
    count(*) FILTER (WHERE s.place <= :limit::bigint) AS first,
    count(*) FILTER (WHERE s.place > :limit::bigint) AS more
  FROM (
    SELECT p.type, p.place
    FROM (
      SELECT u.type, u.prefetchable, row_number() OVER (ORDER BY u.claim_order) AS place
      FROM (
        SELECT t.type, f.claim_order, f.prefetchable
        FROM ranges AS t
        CROSS JOIN LATERAL (
          SELECT w.claim_order,
            w.delivery = 'lease' AND w.losses = 0 AND (
              SELECT j.max_attempts IS NULL OR j.max_attempts > w.failures + 1
              FROM outlast.jobs AS j WHERE j.id = w.job
            ) AS prefetchable
          FROM outlast.waiting AS w
          WHERE w.queue = :queue::text AND w.type = t.type AND w.state = 'queued'
            AND w.claim_order > t.low AND w.claim_order < t.high
            AND (w.start_deadline IS NULL OR w.start_deadline >= t.now)
            AND (
              w.delivery <> 'once'
              OR NOT EXISTS (
                SELECT 1 FROM outlast.open_runs AS o
                WHERE o.delivery = 'once' AND o.name = w.name
              )
              AND w.job = (
                SELECT e.job FROM outlast.waiting AS e
                WHERE e.delivery = 'once' AND e.state = 'queued'
                  AND e.name = w.name AND e.queue = w.queue
                  AND (e.start_deadline IS NULL OR e.start_deadline >= t.now)
                  AND e.type = ANY(:types::text[])
                ORDER BY e.claim_order
                LIMIT 1
              )
            )
          ORDER BY w.claim_order
          LIMIT :limit::bigint
        ) AS f
        UNION
        SELECT t.type, f.claim_order, true
        FROM ranges AS t
        CROSS JOIN LATERAL (
          SELECT w.claim_order FROM outlast.waiting AS w
          WHERE w.queue = :queue::text AND w.type = t.type AND w.state = 'queued'
            AND w.claim_order > t.low AND w.claim_order < t.high
            AND (w.start_deadline IS NULL OR w.start_deadline >= t.now)
            AND w.delivery = 'lease' AND w.losses = 0
            AND (
              SELECT j.max_attempts IS NULL OR j.max_attempts > w.failures + 1
              FROM outlast.jobs AS j WHERE j.id = w.job
            )
          ORDER BY w.claim_order
          LIMIT CASE WHEN :prefetch::bigint > 0 THEN :limit::bigint + :prefetch::bigint ELSE 0 END
        ) AS f
      ) AS u
    ) AS p
    WHERE p.place <= :limit::bigint OR p.prefetchable
    ORDER BY p.place
    LIMIT :limit::bigint + :prefetch::bigint
  ) AS s
  WHERE cardinality(:types::text[]) > 1
  GROUP BY s.type
),
lanes AS MATERIALIZED (
  SELECT t.type, t.floor, d.now,
    CASE
      WHEN cardinality(:types::text[]) = 1 THEN :limit::bigint
      ELSE greatest(coalesce(s.first, 0), least(1, :limit::bigint))
    END AS first,
    CASE
      WHEN cardinality(:types::text[]) = 1 THEN :prefetch::bigint
      ELSE greatest(coalesce(s.more, 0), least(1, :prefetch::bigint))
    END AS more
  FROM open_gate AS d
  CROSS JOIN unnest(:types::text[], :floors::bytea[]) AS t (type, floor)
  LEFT JOIN shares AS s ON s.type = t.type
  WHERE :only::uuid IS NULL
),
firsts AS MATERIALIZED (
  SELECT l.type, f.at, f.claim_order, f.prefetchable
  FROM lanes AS l
  CROSS JOIN LATERAL (
    SELECT r.at, r.claim_order, r.prefetchable
    FROM ranges AS s
    CROSS JOIN LATERAL (
      SELECT w.ctid AS at, w.claim_order,
        w.delivery = 'lease' AND w.losses = 0 AND (
          SELECT j.max_attempts IS NULL OR j.max_attempts > w.failures + 1
          FROM outlast.jobs AS j WHERE j.id = w.job
        ) AS prefetchable
      FROM outlast.waiting AS w
      WHERE w.queue = :queue::text AND w.type = l.type AND w.state = 'queued'
        AND w.claim_order > s.low AND w.claim_order < s.high
        AND (w.start_deadline IS NULL OR w.start_deadline >= l.now)
        AND (
          w.delivery <> 'once'
          OR NOT EXISTS (
            SELECT 1 FROM outlast.open_runs AS o WHERE o.delivery = 'once' AND o.name = w.name
          )
          AND w.job = (
            SELECT e.job FROM outlast.waiting AS e
            WHERE e.delivery = 'once' AND e.state = 'queued'
              AND e.name = w.name AND e.queue = w.queue
              AND (e.start_deadline IS NULL OR e.start_deadline >= l.now)
              AND e.type = ANY(:types::text[])
            ORDER BY e.claim_order
            LIMIT 1
          )
        )
      ORDER BY w.claim_order
      LIMIT l.first
      FOR UPDATE SKIP LOCKED
    ) AS r
    WHERE s.type = l.type
    LIMIT l.first
  ) AS f
),
lasts AS MATERIALIZED (
  SELECT l.type, l.floor, l.now, l.more, f.claim_order
  FROM lanes AS l
  LEFT JOIN LATERAL (
    SELECT f.claim_order FROM firsts AS f WHERE f.type = l.type ORDER BY f.claim_order DESC LIMIT 1
  ) AS f ON true
),
mores AS MATERIALIZED (
  SELECT l.type, m.at, m.claim_order
  FROM lasts AS l
  CROSS JOIN LATERAL (
    SELECT w.ctid AS at, w.claim_order
    FROM outlast.waiting AS w
    WHERE w.queue = :queue::text AND w.type = l.type AND w.state = 'queued'
      AND w.claim_order > greatest(l.claim_order, l.floor)
      AND (w.start_deadline IS NULL OR w.start_deadline >= l.now)
      AND w.delivery = 'lease' AND w.losses = 0
      AND (
        SELECT j.max_attempts IS NULL OR j.max_attempts > w.failures + 1
        FROM outlast.jobs AS j WHERE j.id = w.job
      )
    ORDER BY w.claim_order
    LIMIT l.more
    FOR UPDATE SKIP LOCKED
  ) AS m
),
found AS MATERIALIZED (
  SELECT coalesce(l.claim_order, m.claim_order) AS claim_order, clock_timestamp() AS at
  FROM lasts AS l
  LEFT JOIN LATERAL (
    SELECT m.claim_order FROM mores AS m
    WHERE m.type = l.type AND cardinality(:types::text[]) = 1
    ORDER BY m.claim_order DESC
    LIMIT 1
  ) AS m ON true
),
held AS MATERIALIZED (
  SELECT w.ctid AS at
  FROM open_gate AS d
  CROSS JOIN outlast.waiting AS w
  WHERE w.job = :only::uuid AND w.state = 'queued' AND w.type = ANY(:types::text[])
    AND (w.start_deadline IS NULL OR w.start_deadline >= d.now)
    AND (
      w.delivery <> 'once'
      OR NOT EXISTS (
        SELECT 1 FROM outlast.open_runs AS o WHERE o.delivery = 'once' AND o.name = w.name
      )
    )
  FOR UPDATE OF w SKIP LOCKED
),
claimed AS (
  DELETE FROM outlast.waiting
  WHERE (SELECT count(*) FROM found) >= 0  -- the scan is timed before the first write
    AND ctid = ANY(
    CASE
      WHEN :only::uuid IS NOT NULL THEN ARRAY(SELECT at FROM held)
      WHEN cardinality(:types::text[]) = 1 THEN ARRAY(
        SELECT at FROM firsts UNION ALL SELECT at FROM mores
      )
      ELSE ARRAY(
        SELECT r.at
        FROM (
          SELECT p.at, p.prefetchable, row_number() OVER (ORDER BY p.claim_order) AS place
          FROM (
            SELECT at, claim_order, prefetchable FROM firsts
            UNION ALL
            SELECT at, claim_order, true FROM mores
          ) AS p
        ) AS r
        WHERE r.place <= :limit::bigint OR r.prefetchable
        ORDER BY r.place
        LIMIT :limit::bigint + :prefetch::bigint
      )
    END
  )
  RETURNING job, seq, queue, name, delivery, priority, position, available_at, token, failures,
    losses, member_group_id, active, claim_order
),
opened AS (
  INSERT INTO outlast.open_runs (
    job, seq, run_id, token, worker, started_at, lease_until, queue, name, delivery, priority,
    position, available_at, failures, losses, member_group_id, active, plain
  )
  SELECT
    b.job, b.seq,
    (
      :prefix::text
      || lpad(to_hex(row_number() OVER (ORDER BY b.claim_order) - 1 + :opened::bigint), 6, '0')
    )::uuid,
    b.token + 1, d.worker, d.now, coalesce(:mono::bigint, d.now) + :lease::bigint, b.queue, b.name,
    b.delivery, b.priority, b.position, b.available_at, b.failures, b.losses,
    b.member_group_id, b.active,
    NOT :gated::boolean AND NOT b.active AND CASE
      WHEN b.member_group_id IS NULL THEN true
      ELSE coalesce(
        (SELECT g.mode = 'parallel' FROM outlast.groups AS g WHERE g.id = b.member_group_id), false
      )
    END
  FROM claimed AS b
  CROSS JOIN open_gate AS d
  RETURNING job, run_id, token, delivery, failures, losses
)
SELECT
  g.is_paused, g.concurrency, g.is_reserved, g.is_due, g.worker IS NULL,
  c.jobs, c.tokens, c.runs, c.types, c.params, c.deliveries, c.failures, c.losses, c.most, c.slots,
  c.metadatas,
  (
    SELECT array_agg(f.claim_order) FROM found AS f
    WHERE extract(epoch FROM f.at - statement_timestamp())::double precision
      > :slow::double precision
  ),
  (SELECT extract(epoch FROM max(f.at) - statement_timestamp())::double precision FROM found AS f),
  extract(epoch FROM clock_timestamp() - statement_timestamp())::double precision,
  CASE
    WHEN c.jobs IS NULL THEN (
      SELECT min(d.available_at) - g.now
      FROM (
        SELECT w.queue, w.type, w.available_at,
          row_number() OVER (ORDER BY w.available_at, w.seq) AS place
        FROM (
          SELECT w.queue, w.type, w.available_at, w.seq
          FROM outlast.waiting AS w
          WHERE w.state IN ('scheduled', 'retry_wait') AND w.available_at > g.now
          ORDER BY w.available_at, w.seq
          LIMIT :due_seen::bigint
        ) AS w
      ) AS d
      WHERE d.place = :due_seen::bigint
        OR d.queue = :queue::text AND d.type = ANY(:types::text[])
    )
  END,
  CASE
    WHEN :count::bigint > 0 THEN (
      SELECT count(*) - coalesce(cardinality(c.jobs), 0)
      FROM (
        SELECT 1
        FROM unnest(:types::text[], :floors::bytea[]) AS t (type, floor)
        JOIN outlast.waiting AS w
          ON w.queue = :queue::text AND w.type = t.type AND w.state = 'queued'
            AND w.claim_order > t.floor
        LIMIT :count::bigint + coalesce(cardinality(c.jobs), 0)
      ) AS n
    )
  END
FROM gate AS g
CROSS JOIN (
  SELECT
    array_agg(o.job::text) AS jobs, array_agg(o.token) AS tokens,
    array_agg(o.run_id::text) AS runs, array_agg(o.type) AS types,
    array_agg(o.params) AS params, array_agg(o.delivery) AS deliveries,
    array_agg(o.failures) AS failures, array_agg(o.losses) AS losses,
    array_agg(o.max_attempts) AS most,
    CASE WHEN count(o.slot_at) > 0 THEN array_agg(o.slot_at) END AS slots,
    CASE WHEN count(o.metadata) > 0 THEN array_agg(o.metadata) END AS metadatas
  FROM (
    SELECT o.job, o.token, o.run_id, j.type, j.params::text AS params, o.delivery, o.failures,
      o.losses, j.max_attempts, j.slot_at, j.metadata::text AS metadata
    FROM opened AS o
    JOIN outlast.jobs AS j ON j.id = o.job
    ORDER BY o.run_id
  ) AS o
) AS c;

-- @small
-- The same for a queue without a backlog, where the plan of the large statement would take longer
-- to start than to run: one range per type, nothing beyond :limit. With several types it may lock
-- jobs that it does not claim, until the statement ends.
WITH gate AS MATERIALIZED (
  SELECT
    coalesce(q.paused_at IS NOT NULL AND (q.resume_at IS NULL OR q.resume_at > c.now), false)
      AS is_paused,
    q.concurrency,
    EXISTS (
      SELECT 1 FROM outlast.reservations AS r WHERE r.queue = :queue::text AND r.status = 'active'
    ) AS is_reserved,
    NOT :promoted::boolean AND EXISTS (
      SELECT 1 FROM outlast.waiting AS w
      WHERE w.state IN ('scheduled', 'retry_wait') AND w.available_at <= c.now
    ) AS is_due,
    (
      SELECT k.id FROM outlast.workers AS k
      WHERE k.instance_id = :instance::text AND k.boot_id = :boot::text
    ) AS worker,
    c.now
  FROM (SELECT coalesce(:now::bigint, outlast.micros()) AS now) AS c
  LEFT JOIN outlast.queues AS q ON q.name = :queue::text
  WHERE CASE
    WHEN EXISTS (SELECT 1 FROM outlast.transfer_status) THEN outlast.require_open(c.now)
    ELSE true
  END  -- a store in transfer accepts no claims
),
candidates AS MATERIALIZED (
  SELECT f.at, f.claim_order
  FROM gate AS g
  CROSS JOIN unnest(:types::text[]) AS t (type)
  CROSS JOIN LATERAL (
    SELECT w.ctid AS at, w.claim_order
    FROM outlast.waiting AS w
    WHERE w.queue = :queue::text AND w.type = t.type AND w.state = 'queued'
      AND (w.start_deadline IS NULL OR w.start_deadline >= g.now)
      AND (
        w.delivery <> 'once'
        OR NOT EXISTS (
          SELECT 1 FROM outlast.open_runs AS o WHERE o.delivery = 'once' AND o.name = w.name
        )
        AND w.job = (
          SELECT e.job FROM outlast.waiting AS e
          WHERE e.delivery = 'once' AND e.state = 'queued'
            AND e.name = w.name AND e.queue = w.queue
            AND (e.start_deadline IS NULL OR e.start_deadline >= g.now)
            AND e.type = ANY(:types::text[])
          ORDER BY e.claim_order
          LIMIT 1
        )
      )
    ORDER BY w.claim_order
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED
  ) AS f
  WHERE g.worker IS NOT NULL
    AND NOT g.is_paused AND g.concurrency IS NULL AND NOT g.is_reserved AND NOT g.is_due
),
claimed AS (
  DELETE FROM outlast.waiting
  WHERE ctid = ANY(
    ARRAY(SELECT p.at FROM candidates AS p ORDER BY p.claim_order LIMIT :limit::bigint)
  )
  RETURNING job, seq, queue, name, delivery, priority, position, available_at, token, failures,
    losses, member_group_id, active, claim_order
),
opened AS (
  INSERT INTO outlast.open_runs (
    job, seq, run_id, token, worker, started_at, lease_until, queue, name, delivery, priority,
    position, available_at, failures, losses, member_group_id, active, plain
  )
  SELECT
    b.job, b.seq,
    (:prefix::text || lpad(to_hex(row_number() OVER (ORDER BY b.claim_order) - 1), 6, '0'))::uuid,
    b.token + 1, g.worker, g.now, coalesce(:mono::bigint, g.now) + :lease::bigint, b.queue, b.name,
    b.delivery, b.priority, b.position, b.available_at, b.failures, b.losses,
    b.member_group_id, b.active,
    NOT b.active AND CASE
      WHEN b.member_group_id IS NULL THEN true
      ELSE coalesce(
        (SELECT s.mode = 'parallel' FROM outlast.groups AS s WHERE s.id = b.member_group_id), false
      )
    END
  FROM claimed AS b
  CROSS JOIN gate AS g
  RETURNING job, run_id, token, delivery, failures, losses
)
SELECT
  g.is_paused, g.concurrency, g.is_reserved, g.is_due, g.worker IS NULL,
  c.jobs, c.tokens, c.runs, c.types, c.params, c.deliveries, c.failures, c.losses, c.most, c.slots,
  c.metadatas,
  NULL::bytea[], NULL::double precision,
  extract(epoch FROM clock_timestamp() - statement_timestamp())::double precision,
  CASE
    WHEN c.jobs IS NULL THEN (
      SELECT min(d.available_at) - g.now
      FROM (
        SELECT w.queue, w.type, w.available_at,
          row_number() OVER (ORDER BY w.available_at, w.seq) AS place
        FROM (
          SELECT w.queue, w.type, w.available_at, w.seq
          FROM outlast.waiting AS w
          WHERE w.state IN ('scheduled', 'retry_wait') AND w.available_at > g.now
          ORDER BY w.available_at, w.seq
          LIMIT :due_seen::bigint
        ) AS w
      ) AS d
      WHERE d.place = :due_seen::bigint
        OR d.queue = :queue::text AND d.type = ANY(:types::text[])
    )
  END,
  CASE
    WHEN :count::bigint > 0 THEN (
      SELECT count(*) - coalesce(cardinality(c.jobs), 0)
      FROM (
        SELECT 1
        FROM unnest(:types::text[]) AS t (type)
        JOIN outlast.waiting AS w
          ON w.queue = :queue::text AND w.type = t.type AND w.state = 'queued'
        LIMIT :count::bigint + coalesce(cardinality(c.jobs), 0)
      ) AS n
    )
  END
FROM gate AS g
CROSS JOIN (
  SELECT
    array_agg(o.job::text) AS jobs, array_agg(o.token) AS tokens,
    array_agg(o.run_id::text) AS runs, array_agg(o.type) AS types,
    array_agg(o.params) AS params, array_agg(o.delivery) AS deliveries,
    array_agg(o.failures) AS failures, array_agg(o.losses) AS losses,
    array_agg(o.max_attempts) AS most,
    CASE WHEN count(o.slot_at) > 0 THEN array_agg(o.slot_at) END AS slots,
    CASE WHEN count(o.metadata) > 0 THEN array_agg(o.metadata) END AS metadatas
  FROM (
    SELECT o.job, o.token, o.run_id, j.type, j.params::text AS params, o.delivery, o.failures,
      o.losses, j.max_attempts, j.slot_at, j.metadata::text AS metadata
    FROM opened AS o
    JOIN outlast.jobs AS j ON j.id = o.job
    ORDER BY o.run_id
  ) AS o
) AS c;

-- @promote
-- SKIP LOCKED: a job that another claim promotes at this moment is skipped.
UPDATE outlast.waiting
SET state = 'queued'
WHERE ctid = ANY(ARRAY(
  SELECT w.ctid FROM outlast.waiting AS w
  WHERE w.state IN ('scheduled', 'retry_wait')
    AND w.available_at <= (SELECT coalesce(:now::bigint, outlast.micros()))
    AND (
      SELECT CASE
        WHEN EXISTS (SELECT 1 FROM outlast.transfer_status)
          THEN outlast.require_open(coalesce(:now::bigint, outlast.micros()))
        ELSE true
      END
    )
  ORDER BY w.available_at, w.seq
  LIMIT :limit::bigint
  FOR UPDATE SKIP LOCKED
));

-- @add_worker
INSERT INTO outlast.workers (instance_id, boot_id)
VALUES (:instance::text, :boot::text)
ON CONFLICT DO NOTHING;

-- @gate
-- The gate of a queue, read under its lock; always one row.
SELECT
  coalesce(q.paused_at IS NOT NULL AND (q.resume_at IS NULL OR q.resume_at > :now::bigint), false),
  q.concurrency,
  r.id IS NOT NULL,
  r.job,
  CASE
    WHEN q.concurrency IS NULL THEN 0
    ELSE (SELECT count(*) FROM outlast.open_runs AS o WHERE o.queue = :queue::text)
  END
FROM (SELECT 1) AS one
LEFT JOIN outlast.queues AS q ON q.name = :queue::text
LEFT JOIN outlast.reservations AS r ON r.queue = :queue::text AND r.status = 'active';

-- @opened_by_prefix
-- The runs that claims opened whose reply was lost: all runs of a claim share a prefix.
SELECT
  o.job::text, o.token, o.run_id::text, j.type, j.params::text, o.delivery, o.failures, o.losses,
  j.max_attempts, j.slot_at, j.metadata::text
FROM outlast.open_runs AS o
JOIN outlast.jobs AS j ON j.id = o.job
WHERE left(o.run_id::text, 30) = ANY(:prefixes::text[])
ORDER BY o.run_id;
