-- @job_count
SELECT count(*) FROM outlast.jobs;

-- @jobs
-- One statement, so that a page is one snapshot. Params and results are not returned. A json column
-- holds valid JSON.
SELECT
  j.seq, j.id, j.delivery, j.queue, j.created_at, true,
  w.job, w.state, w.token, w.failures, w.losses,
  (w.queue, w.type, w.name, w.delivery, w.member_group_id, w.seq)
    IS NOT DISTINCT FROM (j.queue, j.type, j.name, j.delivery, j.member_group_id, j.seq),
  o.job, o.run_id, o.token, o.failures, o.losses,
  (o.queue, o.name, o.delivery, o.member_group_id, o.seq)
    IS NOT DISTINCT FROM (j.queue, j.name, j.delivery, j.member_group_id, j.seq),
  EXISTS (SELECT 1 FROM outlast.workers AS k WHERE k.id = o.worker),
  e.job, e.state, e.token, e.failures, e.losses, e.at,
  (e.queue, e.seq) IS NOT DISTINCT FROM (j.queue, j.seq),
  CASE WHEN j.root IS NULL THEN j.id ELSE r.id END,
  j.retry_of, b.id, coalesce(t.id, CASE WHEN b.root IS NULL THEN b.id END), f.failures, f.losses,
  EXISTS (
    SELECT 1 FROM outlast.events AS v
    WHERE v.job = j.retry_of AND v.kind = 'chained' AND v.at = j.created_at
  ),
  coalesce((SELECT json_agg(s.id) FROM outlast.jobs AS s WHERE s.retry_of = j.id), '[]')::text,
  coalesce(
    (
      SELECT json_agg(
        json_build_array(
          c.token, c.run_id, c.status, c.finished_at, c.result IS NOT NULL,
          EXISTS (SELECT 1 FROM outlast.workers AS k WHERE k.id = c.worker)
        )
      )
      FROM outlast.runs AS c
      WHERE c.job = j.id
    ),
    '[]'
  )::text,
  coalesce(
    (
      SELECT json_agg(json_build_array(v.id, v.kind, v.token, v.at))
      FROM outlast.events AS v
      WHERE v.job = j.id
    ),
    '[]'
  )::text,
  coalesce(
    (
      SELECT json_agg(json_build_array(v.id, v.queue, v.status))
      FROM outlast.reservations AS v
      WHERE v.job = j.id
    ),
    '[]'
  )::text,
  j.member_group_id IS NOT NULL, g.id,
  j.active_key,
  (
    SELECT h.job FROM outlast.keys AS h
    WHERE h.scope = 'active' AND h.key = j.active_key AND h.bucket = ''
  ),
  j.metadata::text,
  coalesce(
    (
      SELECT json_agg(h.label || CASE WHEN h.seq = j.seq THEN '' ELSE ' seq=' || h.seq END)
      FROM outlast.labels AS h
      WHERE h.job = j.id
    ),
    '[]'
  )::text
FROM (
  SELECT * FROM outlast.jobs WHERE seq > :after::bigint ORDER BY seq LIMIT :limit::bigint
) AS j
LEFT JOIN outlast.waiting AS w ON w.job = j.id
LEFT JOIN outlast.open_runs AS o ON o.job = j.id
LEFT JOIN outlast.ends AS e ON e.job = j.id
LEFT JOIN outlast.jobs AS r ON r.id = j.root
LEFT JOIN outlast.jobs AS b ON b.id = j.retry_of
LEFT JOIN outlast.jobs AS t ON t.id = b.root
LEFT JOIN outlast.ends AS f ON f.job = j.retry_of
LEFT JOIN outlast.groups AS g ON g.id = j.member_group_id
ORDER BY j.seq;

-- @orphans
-- Rows of jobs that do not exist: a scan of all tables. A limit per kind, so that many of one kind
-- do not hide the others.
(
  SELECT 'run', json_build_array('runs job=' || x.job || ' token=' || x.token)::text, '', NULL
  FROM outlast.runs AS x
  WHERE NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.id = x.job)
  LIMIT :limit::bigint
)
UNION ALL
(
  SELECT 'event', json_build_array('events id=' || x.id)::text, '', NULL
  FROM outlast.events AS x
  WHERE x.job IS NOT NULL AND NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.id = x.job)
  LIMIT :limit::bigint
)
UNION ALL
(
  SELECT 'label', json_build_array('labels label=' || x.label || ' job=' || x.job)::text, x.label,
    NULL
  FROM outlast.labels AS x
  WHERE NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.id = x.job)
  LIMIT :limit::bigint
)
UNION ALL
(
  SELECT 'place', json_build_array('waiting job=' || x.job)::text, '', NULL
  FROM outlast.waiting AS x
  WHERE NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.id = x.job)
  LIMIT :limit::bigint
)
UNION ALL
(
  SELECT 'place', json_build_array('open_runs job=' || x.job)::text, '', NULL
  FROM outlast.open_runs AS x
  WHERE NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.id = x.job)
  LIMIT :limit::bigint
)
UNION ALL
(
  SELECT 'place', json_build_array('ends job=' || x.job)::text, '', NULL
  FROM outlast.ends AS x
  WHERE NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.id = x.job)
  LIMIT :limit::bigint
)
UNION ALL
(
  SELECT 'reservation', json_build_array('reservations id=' || x.id)::text, x.queue, NULL
  FROM outlast.reservations AS x
  WHERE x.ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.id = x.job)
  LIMIT :limit::bigint
);

-- @keys
-- An active key references the root of a chain whose last job has not ended. Other keys and slots
-- stay after their job; while it is stored, it is a root.
(
  SELECT
    CASE WHEN j.id IS NULL THEN 'key' ELSE 'key_of_ended' END,
    json_build_array('keys scope=active key=' || k.key)::text, k.key, j.id
  FROM outlast.keys AS k
  LEFT JOIN outlast.jobs AS j ON j.id = k.job
  WHERE k.scope = 'active'
    AND (j.id IS NULL OR EXISTS (SELECT 1 FROM outlast.ends AS e WHERE e.job = j.id))
    AND NOT EXISTS (
      SELECT 1 FROM outlast.jobs AS s
      WHERE s.root = j.id AND NOT EXISTS (SELECT 1 FROM outlast.ends AS e WHERE e.job = s.id)
    )
  LIMIT :limit::bigint
)
UNION ALL
(
  SELECT
    'key_of_link',
    json_build_array('keys scope=' || k.scope || ' key=' || k.key || ' bucket=' || k.bucket)::text,
    k.key, j.id
  FROM outlast.keys AS k
  JOIN outlast.jobs AS j ON j.id = k.job
  WHERE j.root IS NOT NULL
  LIMIT :limit::bigint
)
UNION ALL
(
  SELECT
    'key_of_link',
    json_build_array('slots series=' || k.series || ' slot_at=' || k.slot_at)::text, k.series, j.id
  FROM outlast.slots AS k
  JOIN outlast.jobs AS j ON j.id = k.job
  WHERE j.root IS NOT NULL
  LIMIT :limit::bigint
);

-- @slots
-- A job with a slot has the row of that slot.
SELECT 'slot', json_build_array('jobs id=' || j.id)::text, j.name, j.id
FROM outlast.jobs AS j
WHERE j.slot_at IS NOT NULL AND j.root IS NULL
  AND NOT EXISTS (
    SELECT 1 FROM outlast.slots AS s WHERE s.job = j.id AND s.slot_at = j.slot_at
  )
LIMIT :limit::bigint;

-- @doubles
-- What may exist once: an active reservation of a queue, an open `once` run of a name.
(
  SELECT 'reserved_twice', json_agg('reservations id=' || x.id)::text, x.queue, NULL
  FROM outlast.reservations AS x
  WHERE x.ended_at IS NULL
  GROUP BY x.queue
  HAVING count(*) > 1
  LIMIT :limit::bigint
)
UNION ALL
(
  SELECT 'overlap', json_agg('open_runs job=' || x.job)::text, x.name, NULL
  FROM outlast.open_runs AS x
  WHERE x.delivery = 'once'
  GROUP BY x.name
  HAVING count(*) > 1
  LIMIT :limit::bigint
);

-- @turns
-- Live members only. In a sequential group one member at a time is in play, and those before it
-- have ended; a chain has the place of its root. A sealed group that is not closing has a member in
-- play while another one is blocked.
WITH
  live (member_group_id, first, row, in_play) AS (
    SELECT w.member_group_id, coalesce(r.seq, j.seq), 'waiting job=' || w.job, w.state <> 'blocked'
    FROM outlast.waiting AS w
    JOIN outlast.jobs AS j ON j.id = w.job
    LEFT JOIN outlast.jobs AS r ON r.id = j.root
    WHERE w.member_group_id IS NOT NULL
    UNION ALL
    SELECT o.member_group_id, coalesce(r.seq, j.seq), 'open_runs job=' || o.job, true
    FROM outlast.open_runs AS o
    JOIN outlast.jobs AS j ON j.id = o.job
    LEFT JOIN outlast.jobs AS r ON r.id = j.root
    WHERE o.member_group_id IS NOT NULL
  ),
  turns (member_group_id, playing, latest, blocked, earliest, rows) AS (
    SELECT
      member_group_id, count(*) FILTER (WHERE in_play), max(first) FILTER (WHERE in_play),
      count(*) FILTER (WHERE NOT in_play), min(first) FILTER (WHERE NOT in_play),
      array_agg(row) FILTER (WHERE in_play)
    FROM live
    GROUP BY member_group_id
  )
(
  SELECT
    'out_of_turn', array_to_json(array_append(t.rows, 'groups id=' || g.id))::text, g.id::text, NULL
  FROM turns AS t
  JOIN outlast.groups AS g ON g.id = t.member_group_id
  WHERE g.mode = 'sequential' AND (t.playing > 1 OR t.latest > t.earliest)
  LIMIT :limit::bigint
)
UNION ALL
(
  SELECT 'stalled', json_build_array('groups id=' || g.id)::text, g.id::text, NULL
  FROM turns AS t
  JOIN outlast.groups AS g ON g.id = t.member_group_id
  WHERE g.sealed_at IS NOT NULL AND g.closing IS NULL AND t.blocked > 0
    AND (g.mode = 'parallel' OR t.playing = 0)
  LIMIT :limit::bigint
);
