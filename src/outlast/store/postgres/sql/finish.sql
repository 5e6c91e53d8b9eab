-- @plain
-- Successful runs that record a result and affect no other row: one statement. Each open run is
-- looked up by key and deleted by ctid, not joined: a plan made while nothing ran would scan all
-- open runs for each one, 80 times slower. CASE hides the fence (the open run must have exactly
-- this token) from the planner for the same reason. Returns the finished runs, or NULL if all were
-- finished; a run that is renewed at the same moment is not finished.
WITH asked AS MATERIALIZED (
  SELECT l.place, c.result, c.n
  FROM unnest(
    string_to_array(:jobs::text, ',')::uuid[], string_to_array(:token_list::text, ',')::integer[],
    :results::text[]
  ) WITH ORDINALITY AS c (job, token, result, n)
  CROSS JOIN LATERAL (
    SELECT r.ctid AS place
    FROM outlast.open_runs AS r
    WHERE r.job = c.job AND CASE WHEN r.token = c.token THEN r.plain ELSE false END
    OFFSET 0
  ) AS l
),
closed AS (
  DELETE FROM outlast.open_runs AS o
  USING asked AS c
  WHERE o.ctid = c.place
  RETURNING o.job, o.seq, o.token, o.run_id, o.worker, o.started_at, o.artifacts, o.progress,
    o.queue, o.priority, o.position, o.available_at, o.failures, o.losses, c.result, c.n
),
clock AS MATERIALIZED (SELECT coalesce(:now::bigint, outlast.micros()) AS now),
kept AS (
  INSERT INTO outlast.runs (
    job, token, run_id, status, worker, started_at, finished_at, result, artifacts, progress
  )
  SELECT
    c.job, c.token, c.run_id, 'succeeded', c.worker, c.started_at, k.now, c.result::json,
    c.artifacts, c.progress
  FROM closed AS c
  CROSS JOIN clock AS k
),
ended AS (
  INSERT INTO outlast.ends (
    job, seq, state, at, queue, priority, position, available_at, token, failures, losses
  )
  SELECT
    c.job, c.seq, 'succeeded', k.now, c.queue, c.priority, c.position, c.available_at, c.token,
    c.failures, c.losses
  FROM closed AS c
  CROSS JOIN clock AS k
)
SELECT
  CASE WHEN count(*) < :number::bigint THEN coalesce(array_agg(c.n), '{}') END,
  count(*)
FROM closed AS c;

-- @logged
-- As `plain`, with the last lines that the runs logged.
WITH asked AS MATERIALIZED (
  SELECT l.place, c.result, c.n
  FROM unnest(
    string_to_array(:jobs::text, ',')::uuid[], string_to_array(:token_list::text, ',')::integer[],
    :results::text[]
  ) WITH ORDINALITY AS c (job, token, result, n)
  CROSS JOIN LATERAL (
    SELECT r.ctid AS place
    FROM outlast.open_runs AS r
    WHERE r.job = c.job AND CASE WHEN r.token = c.token THEN r.plain ELSE false END
    OFFSET 0
  ) AS l
),
closed AS (
  DELETE FROM outlast.open_runs AS o
  USING asked AS c
  WHERE o.ctid = c.place
  RETURNING o.job, o.seq, o.token, o.run_id, o.worker, o.started_at, o.artifacts, o.progress,
    o.queue, o.priority, o.position, o.available_at, o.failures, o.losses, c.result, c.n
),
clock AS MATERIALIZED (SELECT coalesce(:now::bigint, outlast.micros()) AS now),
kept AS (
  INSERT INTO outlast.runs (
    job, token, run_id, status, worker, started_at, finished_at, result, artifacts, progress
  )
  SELECT
    c.job, c.token, c.run_id, 'succeeded', c.worker, c.started_at, k.now, c.result::json,
    c.artifacts, c.progress
  FROM closed AS c
  CROSS JOIN clock AS k
),
logged AS (
  INSERT INTO outlast.logs (job, token, first, lines, text)
  SELECT c.job, c.token, l.first, l.lines, l.text
  FROM unnest(
    :log_numbers::bigint[], :firsts::integer[], :lines::integer[], :texts::text[]
  ) AS l (n, first, lines, text)
  JOIN closed AS c ON c.n = l.n
  ON CONFLICT (job, token, first) DO UPDATE
  SET lines = excluded.lines, text = excluded.text
),
dropped AS (
  DELETE FROM outlast.logs
  WHERE ctid = ANY(
    ARRAY(
      SELECT l.place
      FROM unnest(:drop_numbers::bigint[], :drops::integer[]) AS d (n, first)
      JOIN closed AS c ON c.n = d.n
      CROSS JOIN LATERAL (
        SELECT g.ctid AS place
        FROM outlast.logs AS g
        WHERE g.job = c.job AND g.token = c.token AND g.first = d.first
        OFFSET 0
      ) AS l
    )
  )
),
ended AS (
  INSERT INTO outlast.ends (
    job, seq, state, at, queue, priority, position, available_at, token, failures, losses
  )
  SELECT
    c.job, c.seq, 'succeeded', k.now, c.queue, c.priority, c.position, c.available_at, c.token,
    c.failures, c.losses
  FROM closed AS c
  CROSS JOIN clock AS k
)
SELECT
  CASE WHEN count(*) < :number::bigint THEN coalesce(array_agg(c.n), '{}') END,
  count(*)
FROM closed AS c;
