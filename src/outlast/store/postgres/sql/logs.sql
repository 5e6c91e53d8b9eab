-- @write
-- The fence: only runs that are open with exactly this token, and stay so until the commit. Each
-- dropped chunk is looked up by key: a plan made while nothing was logged would scan the table.
WITH held AS MATERIALIZED (
  SELECT o.job, o.token
  FROM outlast.open_runs AS o
  WHERE o.job = ANY(:jobs::uuid[])
    AND CASE
      WHEN (o.job, o.token) IN (
        SELECT l.job, l.token FROM unnest(:jobs::uuid[], :tokens::integer[]) AS l (job, token)
      ) THEN true
      ELSE false
    END
  ORDER BY o.job
  FOR KEY SHARE
),
written AS (
  INSERT INTO outlast.logs (job, token, first, lines, text)
  SELECT h.job, h.token, l.first, l.lines, l.text
  FROM unnest(
    :log_jobs::uuid[], :firsts::integer[], :lines::integer[], :texts::text[]
  ) AS l (job, first, lines, text)
  JOIN held AS h ON h.job = l.job
  ON CONFLICT (job, token, first) DO UPDATE
  SET lines = excluded.lines, text = excluded.text
),
dropped AS (
  DELETE FROM outlast.logs
  WHERE ctid = ANY(
    ARRAY(
      SELECT l.place
      FROM unnest(:drop_jobs::uuid[], :drops::integer[]) AS d (job, first)
      JOIN held AS h ON h.job = d.job
      CROSS JOIN LATERAL (
        SELECT g.ctid AS place
        FROM outlast.logs AS g
        WHERE g.job = h.job AND g.token = h.token AND g.first = d.first
        OFFSET 0
      ) AS l
    )
  )
)
SELECT job, token FROM held;

-- @chunks
SELECT token, first, lines, text
FROM outlast.logs
WHERE job = :id::uuid AND (token, first + lines - 1) > (:token::integer, :line::integer)
ORDER BY token, first
LIMIT :limit::bigint;

-- @lengths
SELECT token, max(first + lines - 1)
FROM outlast.logs
WHERE job = :id::uuid
GROUP BY token
ORDER BY token;
