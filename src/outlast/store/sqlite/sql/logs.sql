-- @write
-- The fence: only runs that are open with exactly this token. A chunk replaces the one with the same
-- first line.
INSERT INTO outlast_logs (job, token, first, lines, text)
SELECT o.job, o.token, c.value ->> 2, c.value ->> 3, c.value ->> 4
FROM json_each(:chunks) AS c
CROSS JOIN outlast_jobs AS j ON j.id = c.value ->> 0
CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = c.value ->> 1
WHERE true
ON CONFLICT (job, token, first) DO UPDATE
SET lines = excluded.lines, text = excluded.text;

-- @drop
DELETE FROM outlast_logs
WHERE (job, token, first) IN (
  SELECT o.job, o.token, d.value ->> 2
  FROM json_each(:dropped) AS d
  CROSS JOIN outlast_jobs AS j ON j.id = d.value ->> 0
  CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = d.value ->> 1
);

-- @accepted
SELECT json_group_array(l.key)
FROM json_each(:leases) AS l
CROSS JOIN outlast_jobs AS j ON j.id = l.value ->> 0
CROSS JOIN outlast_open_runs AS o ON o.job = j.seq AND o.token = l.value ->> 1;

-- @chunks
SELECT l.token, l.first, l.lines, l.text
FROM outlast_jobs AS j
CROSS JOIN outlast_logs AS l ON l.job = j.seq
WHERE j.id = :id AND (l.token, l.first + l.lines - 1) > (:token, :line)
ORDER BY l.token, l.first
LIMIT :limit;

-- @lengths
SELECT l.token, max(l.first + l.lines - 1)
FROM outlast_jobs AS j
CROSS JOIN outlast_logs AS l ON l.job = j.seq
WHERE j.id = :id
GROUP BY l.token
ORDER BY l.token;
