-- @pick
-- Each kind of end by its own index range, so that the cost does not grow with history.
INSERT INTO temp.holdfast_picked (job)
SELECT coalesce(j.root, j.seq)
FROM (
  SELECT * FROM (
    SELECT e.job, e.at FROM holdfast_ends AS e
    WHERE e.state = 'succeeded' AND e.at < :before
      AND NOT EXISTS (SELECT 1 FROM holdfast_jobs AS s WHERE s.retry_of = e.job)
    ORDER BY e.at, e.job
    LIMIT :limit
  )
  UNION ALL
  SELECT * FROM (
    SELECT e.job, e.at FROM holdfast_ends AS e
    WHERE e.state = 'skipped' AND e.at < :before
      AND NOT EXISTS (SELECT 1 FROM holdfast_jobs AS s WHERE s.retry_of = e.job)
    ORDER BY e.at, e.job
    LIMIT :limit
  )
  UNION ALL
  SELECT * FROM (
    SELECT e.job, e.at FROM holdfast_ends AS e
    WHERE e.state = 'cancelled' AND e.at < :before
      AND NOT EXISTS (SELECT 1 FROM holdfast_jobs AS s WHERE s.retry_of = e.job)
    ORDER BY e.at, e.job
    LIMIT :limit
  )
) AS e
CROSS JOIN holdfast_jobs AS j ON j.seq = e.job
ORDER BY e.at, e.job
LIMIT :limit;

-- @delete
-- Runs, ends and events go with their job; keys and slots stay.
DELETE FROM holdfast_jobs
WHERE seq IN (SELECT job FROM temp.holdfast_picked)
  OR root IN (SELECT job FROM temp.holdfast_picked);
