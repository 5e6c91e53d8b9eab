-- The fence (the open run must bear exactly this token) is hidden from the planner, and the runs are
-- asked for by their ids: a plan that was made when nothing ran would join them the slow way.

-- @renew
-- With a direct job's lease its hold on the queue is renewed.
WITH clock AS MATERIALIZED (
  SELECT
    coalesce(:now::bigint, outlast.micros()) AS now,
    coalesce(:mono::bigint, outlast.micros()) AS mono
),
renewed AS (
  UPDATE outlast.open_runs AS o
  SET lease_until = k.mono + :span::bigint
  FROM clock AS k
  WHERE o.job = ANY(:jobs::uuid[])
    AND CASE
      WHEN (o.job, o.token) IN (
        SELECT l.job, l.token FROM unnest(:jobs::uuid[], :tokens::integer[]) AS l (job, token)
      ) THEN true
      ELSE false
    END
  RETURNING o.job, o.token, o.cancel
),
kept AS (
  UPDATE outlast.reservations AS r
  SET until = k.mono + r.span, expires_at = k.now + r.span
  FROM clock AS k
  WHERE r.status = 'active' AND r.job IN (SELECT n.job FROM renewed AS n)
)
SELECT job, token, cancel FROM renewed;

-- @record_progress
UPDATE outlast.open_runs AS o
SET progress = (
  SELECT l.progress::json
  FROM unnest(:jobs::uuid[], :tokens::integer[], :texts::text[]) AS l (job, token, progress)
  WHERE l.job = o.job AND l.token = o.token
)
WHERE o.job = ANY(:jobs::uuid[])
  AND CASE
    WHEN (o.job, o.token) IN (
      SELECT l.job, l.token FROM unnest(:jobs::uuid[], :tokens::integer[]) AS l (job, token)
    ) THEN true
    ELSE false
  END
RETURNING o.job, o.token;

-- @attach_open
-- Appended as text: what was there stays as it was, to the letter.
UPDATE outlast.open_runs
SET artifacts = CASE
  WHEN artifacts IS NULL THEN :artifacts::text::json
  ELSE (left(artifacts::text, -1) || ',' || substr(:artifacts::text, 2))::json
END
WHERE job = :job::uuid AND token = :token::integer;

-- @attach_closed
-- Only to the job's latest run: a former holder has nothing more to say.
UPDATE outlast.runs
SET artifacts = CASE
  WHEN artifacts IS NULL THEN :artifacts::text::json
  ELSE (left(artifacts::text, -1) || ',' || substr(:artifacts::text, 2))::json
END
WHERE job = :job::uuid
  AND token = :token::integer
  AND token = (SELECT s.token FROM outlast.job_state AS s WHERE s.id = :job::uuid);

-- @is_attachable
SELECT 1
FROM outlast.job_state
WHERE id = :job::uuid AND token = :token::integer AND token > 0;

-- @expired_leases
-- All that runs is few; an index of lease ends would cost every claim and every renewal.
SELECT s.*
FROM (
  SELECT job, seq, lease_until FROM outlast.open_runs
  WHERE lease_until <= (SELECT coalesce(:mono::bigint, outlast.micros()))
  ORDER BY lease_until, seq
  LIMIT :limit::bigint
) AS o
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = o.job OFFSET 0) AS s
ORDER BY o.lease_until, o.seq;

-- @missed_start_deadline
-- The state is hidden from the planner, which would otherwise go through all that are queued.
SELECT s.*
FROM (
  SELECT job, seq, start_deadline FROM outlast.waiting
  WHERE start_deadline IS NOT NULL AND CASE WHEN state = 'queued' THEN true ELSE false END
    AND start_deadline < (SELECT coalesce(:now::bigint, outlast.micros()))
  ORDER BY start_deadline, seq
  LIMIT :limit::bigint
) AS w
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = w.job OFFSET 0) AS s
ORDER BY w.start_deadline, w.seq;
