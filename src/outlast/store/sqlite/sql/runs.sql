-- @renew
UPDATE outlast_open_runs
SET lease_until = :until
WHERE job IN (
  SELECT o.job
  FROM json_each(:leases) AS l
  CROSS JOIN outlast_jobs AS j ON j.id = l.value ->> 0
  CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = l.value ->> 1
);

-- @renewed
SELECT json_group_array(json_array(l.key, o.cancel))
FROM json_each(:leases) AS l
CROSS JOIN outlast_jobs AS j ON j.id = l.value ->> 0
CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = l.value ->> 1;

-- @report
-- Without the LIMIT the planner would walk through all that runs and ask of each whether it is meant.
UPDATE outlast_open_runs
SET progress = r.progress
FROM (
  SELECT o.job, l.value ->> 2 AS progress
  FROM json_each(:reports) AS l
  CROSS JOIN outlast_jobs AS j ON j.id = l.value ->> 0
  CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = l.value ->> 1
  WHERE json_valid(l.value ->> 2)
  LIMIT -1
) AS r
WHERE outlast_open_runs.job = r.job;

-- @reported
SELECT json_group_array(l.key)
FROM json_each(:reports) AS l
CROSS JOIN outlast_jobs AS j ON j.id = l.value ->> 0
CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = l.value ->> 1
WHERE json_valid(l.value ->> 2);

-- @attach_open
UPDATE outlast_open_runs
SET artifacts = (
  SELECT json_group_array(value)
  FROM (SELECT value FROM json_each(artifacts) UNION ALL SELECT value FROM json_each(:artifacts))
)
WHERE job = (SELECT seq FROM outlast_jobs WHERE id = :id) AND token = :token;

-- @attach_closed
-- Only to the job's latest run: a former holder has nothing more to say.
UPDATE outlast_runs
SET artifacts = (
  SELECT json_group_array(value)
  FROM (SELECT value FROM json_each(artifacts) UNION ALL SELECT value FROM json_each(:artifacts))
)
WHERE job = (SELECT seq FROM outlast_jobs WHERE id = :id)
  AND token = :token
  AND token = (SELECT s.token FROM outlast_job_state AS s WHERE s.id = :id);
