-- @job_count
SELECT count(*) FROM outlast_jobs;

-- @jobs
-- One statement, so that a page is one snapshot. Params and results are checked, not returned.
SELECT
  j.seq, j.id, j.delivery, j.queue, j.created_at, json_valid(j.params),
  w.job, w.state, w.token, w.failures, w.losses,
  w.queue IS j.queue AND w.type IS j.type AND w.name IS j.name AND w.delivery IS j.delivery
    AND w.member_of IS j.member_of,
  o.job, o.run_id, o.token, o.failures, o.losses,
  o.queue IS j.queue AND o.name IS j.name AND o.delivery IS j.delivery AND o.member_of IS j.member_of,
  EXISTS (SELECT 1 FROM outlast_workers AS k WHERE k.id = o.worker),
  e.job, e.state, e.token, e.failures, e.losses, e.at, e.queue IS j.queue,
  CASE WHEN j.root IS NULL THEN j.id ELSE r.id END,
  j.retry_of, b.id, coalesce(t.id, CASE WHEN b.root IS NULL THEN b.id END), f.failures, f.losses,
  EXISTS (
    SELECT 1 FROM outlast_events AS v
    WHERE v.job = j.retry_of AND v.kind = 'chained' AND v.at = j.created_at
  ),
  (SELECT json_group_array(s.id) FROM outlast_jobs AS s WHERE s.retry_of = j.seq),
  (
    SELECT json_group_array(
      json_array(
        c.token, c.run_id, c.status, c.finished_at, c.result IS NOT NULL,
        EXISTS (SELECT 1 FROM outlast_workers AS k WHERE k.id = c.worker)
      )
    )
    FROM outlast_runs AS c
    WHERE c.job = j.seq
  ),
  (
    SELECT json_group_array(json_array(v.id, v.kind, v.token, v.at))
    FROM outlast_events AS v
    WHERE v.job = j.seq
  ),
  (
    SELECT json_group_array(json_array(v.id, v.queue, v.status))
    FROM outlast_reservations AS v
    WHERE v.job_id = j.id
  ),
  j.member_of IS NOT NULL, g.id,
  j.active_key,
  (
    SELECT h.job_id FROM outlast_keys AS h
    WHERE h.scope = 'active' AND h.key = j.active_key AND h.bucket = ''
  ),
  j.metadata,
  (SELECT json_group_array(h.label) FROM outlast_labels AS h WHERE h.job = j.seq)
FROM outlast_jobs AS j
LEFT JOIN outlast_waiting AS w ON w.job = j.seq
LEFT JOIN outlast_open_runs AS o ON o.job = j.seq
LEFT JOIN outlast_ends AS e ON e.job = j.seq
LEFT JOIN outlast_jobs AS r ON r.seq = j.root
LEFT JOIN outlast_jobs AS b ON b.seq = j.retry_of
LEFT JOIN outlast_jobs AS t ON t.seq = b.root
LEFT JOIN outlast_ends AS f ON f.job = j.retry_of
LEFT JOIN outlast_groups AS g ON g.seq = j.member_of
WHERE j.seq > :after
ORDER BY j.seq
LIMIT :limit;

-- @orphans
-- Rows of jobs that are gone, by full scans on purpose. Each kind has its own limit, so that many
-- of one kind do not hide the others.
SELECT * FROM (
  SELECT 'run', json_array('runs job=' || x.job || ' token=' || x.token), '', NULL
  FROM outlast_runs AS x
  WHERE NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = x.job)
  LIMIT :limit
)
UNION ALL
SELECT * FROM (
  SELECT 'event', json_array('events id=' || x.id), '', NULL
  FROM outlast_events AS x
  WHERE x.job IS NOT NULL AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = x.job)
  LIMIT :limit
)
UNION ALL
SELECT * FROM (
  SELECT 'label', json_array('labels label=' || x.label || ' job=' || x.job), x.label, NULL
  FROM outlast_labels AS x
  WHERE NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = x.job)
  LIMIT :limit
)
UNION ALL
SELECT * FROM (
  SELECT 'place', json_array('waiting job=' || x.job), '', NULL
  FROM outlast_waiting AS x
  WHERE NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = x.job)
  LIMIT :limit
)
UNION ALL
SELECT * FROM (
  SELECT 'place', json_array('open_runs job=' || x.job), '', NULL
  FROM outlast_open_runs AS x
  WHERE NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = x.job)
  LIMIT :limit
)
UNION ALL
SELECT * FROM (
  SELECT 'place', json_array('ends job=' || x.job), '', NULL
  FROM outlast_ends AS x
  WHERE NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.seq = x.job)
  LIMIT :limit
)
UNION ALL
SELECT * FROM (
  SELECT 'reservation', json_array('reservations id=' || x.id), x.queue, NULL
  FROM outlast_reservations AS x
  WHERE x.ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM outlast_jobs AS j WHERE j.id = x.job_id)
  LIMIT :limit
);

-- @keys
-- An active key names the root of a chain whose last job has not ended. Other keys and slots
-- outlive their job; while that exists, it is a root.
SELECT * FROM (
  SELECT
    CASE WHEN j.seq IS NULL THEN 'key' ELSE 'key_of_ended' END,
    json_array('keys scope=active key=' || k.key), k.key, j.id
  FROM outlast_keys AS k
  LEFT JOIN outlast_jobs AS j ON j.id = k.job_id
  WHERE k.scope = 'active'
    AND (j.seq IS NULL OR EXISTS (SELECT 1 FROM outlast_ends AS e WHERE e.job = j.seq))
    AND NOT EXISTS (
      SELECT 1 FROM outlast_jobs AS s
      WHERE s.root = j.seq AND NOT EXISTS (SELECT 1 FROM outlast_ends AS e WHERE e.job = s.seq)
    )
  LIMIT :limit
)
UNION ALL
SELECT * FROM (
  SELECT
    'key_of_link', json_array('keys scope=' || k.scope || ' key=' || k.key || ' bucket=' || k.bucket),
    k.key, j.id
  FROM outlast_keys AS k
  CROSS JOIN outlast_jobs AS j ON j.id = k.job_id
  WHERE j.root IS NOT NULL
  LIMIT :limit
)
UNION ALL
SELECT * FROM (
  SELECT 'key_of_link', json_array('slots series=' || k.series || ' slot_at=' || k.slot_at), k.series, j.id
  FROM outlast_slots AS k
  CROSS JOIN outlast_jobs AS j ON j.id = k.job_id
  WHERE j.root IS NOT NULL
  LIMIT :limit
);

-- @slots
-- Every job created for a slot holds that slot.
SELECT 'slot', json_array('jobs seq=' || j.seq), j.name, j.id
FROM outlast_jobs AS j
WHERE j.slot_at IS NOT NULL AND j.root IS NULL
  AND NOT EXISTS (
    SELECT 1 FROM outlast_slots AS s WHERE s.job_id = j.id AND s.slot_at = j.slot_at
  )
LIMIT :limit;

-- @doubles
-- At most one active reservation (without an end) per queue, and one open `once` run per name.
SELECT * FROM (
  SELECT 'reserved_twice', json_group_array('reservations id=' || x.id), x.queue, NULL
  FROM outlast_reservations AS x
  WHERE x.ended_at IS NULL
  GROUP BY x.queue
  HAVING count(*) > 1
  LIMIT :limit
)
UNION ALL
SELECT * FROM (
  SELECT 'overlap', json_group_array('open_runs job=' || x.job), x.name, NULL
  FROM outlast_open_runs AS x
  WHERE x.delivery = 'once'
  GROUP BY x.name
  HAVING count(*) > 1
  LIMIT :limit
);

-- @turns
-- Live members only. In a sequential group one member at a time is unblocked, and those before it
-- are over; a chain keeps the place of its root. A sealed group that is not closing has an
-- unblocked member for as long as any member is blocked.
WITH
  live (member_of, first, row, in_play) AS (
    SELECT w.member_of, coalesce(j.root, j.seq), 'waiting job=' || w.job, w.state <> 'blocked'
    FROM outlast_waiting AS w
    CROSS JOIN outlast_jobs AS j ON j.seq = w.job
    WHERE w.member_of IS NOT NULL
    UNION ALL
    SELECT o.member_of, coalesce(j.root, j.seq), 'open_runs job=' || o.job, 1
    FROM outlast_open_runs AS o
    CROSS JOIN outlast_jobs AS j ON j.seq = o.job
    WHERE o.member_of IS NOT NULL
  ),
  turns (member_of, playing, latest, blocked, earliest, rows) AS (
    SELECT
      member_of, sum(in_play), max(CASE WHEN in_play THEN first END),
      sum(NOT in_play), min(CASE WHEN NOT in_play THEN first END),
      json_group_array(row) FILTER (WHERE in_play)
    FROM live
    GROUP BY member_of
  )
SELECT * FROM (
  SELECT 'out_of_turn', json_insert(t.rows, '$[#]', 'groups id=' || g.id), g.id, NULL
  FROM turns AS t
  CROSS JOIN outlast_groups AS g ON g.seq = t.member_of
  WHERE g.mode = 'sequential' AND (t.playing > 1 OR t.latest > t.earliest)
  LIMIT :limit
)
UNION ALL
SELECT * FROM (
  SELECT 'stalled', json_array('groups id=' || g.id), g.id, NULL
  FROM turns AS t
  CROSS JOIN outlast_groups AS g ON g.seq = t.member_of
  WHERE g.sealed_at IS NOT NULL AND g.closing IS NULL AND t.blocked > 0
    AND (g.mode = 'parallel' OR t.playing = 0)
  LIMIT :limit
);
