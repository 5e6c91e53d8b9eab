-- Scalar subqueries test for rows: `EXISTS` may become a join, or a hash of the whole table, in a
-- plan that was made while the table was empty and is kept when it is full.

-- @add
INSERT INTO outlast.groups (id, name, mode, on_failure, total, created_at)
VALUES (
  :id::uuid, :name::text, :mode::text, :on_failure::text, :total::integer, :now::bigint
)
ON CONFLICT (id) DO NOTHING;

-- @lock_shared
-- FOR SHARE: many transactions may add members at once; seal and stop wait for them.
SELECT id, sealed_at IS NOT NULL, closing, mode
FROM outlast.groups
WHERE id = :id::uuid
FOR SHARE;

-- @lock
-- FOR UPDATE, in one order: one transaction at a time ends a member, seals or stops.
SELECT id, sealed_at IS NOT NULL, closing, mode
FROM outlast.groups
WHERE id = ANY(:ids::uuid[])
ORDER BY id
FOR UPDATE;

-- @seal
UPDATE outlast.groups AS g
SET sealed_at = :now::bigint
WHERE g.id = :id::uuid AND g.sealed_at IS NULL AND g.closing IS NULL
  AND g.total = (
    SELECT count(*) FROM outlast.jobs AS j WHERE j.member_group_id = :id::uuid AND j.root IS NULL
  );

-- @unblock
UPDATE outlast.waiting AS w
SET state = 'scheduled'
WHERE w.state = 'blocked'
  AND w.job = ANY(ARRAY(
    SELECT b.job
    FROM outlast.waiting AS b
    WHERE b.member_group_id = :group_id::uuid AND b.state = 'blocked' AND b.seq > :after::bigint
    ORDER BY b.seq
    LIMIT :limit::bigint
  ))
RETURNING w.queue;

-- @close
UPDATE outlast.groups
SET closing = :closing::text, reason = :reason::text
WHERE id = :group_id::uuid AND closing IS NULL;

-- @record_stop
INSERT INTO outlast.events (job, at, kind, token, reason, detail)
SELECT :job::uuid, :now::bigint, 'group_stopped', :token::integer, g.closing, g.id::text
FROM outlast.groups AS g
WHERE g.id = :group_id::uuid;

-- @stop
UPDATE outlast.groups AS g
SET closing = :closing::text, reason = :reason::text
WHERE g.id = :id::uuid AND g.closing IS NULL
  AND (
    g.sealed_at IS NULL
    OR (SELECT 1 FROM outlast.waiting AS w WHERE w.member_group_id = :id::uuid LIMIT 1) IS NOT NULL
    OR (
      SELECT 1 FROM outlast.open_runs AS o WHERE o.member_group_id = :id::uuid LIMIT 1
    ) IS NOT NULL
  );

-- @expire
-- Checked again by the UPDATE: a group that is sealed meanwhile is not stopped.
UPDATE outlast.groups AS g
SET closing = 'stop', reason = :reason::text
WHERE g.sealed_at IS NULL AND g.closing IS NULL
  AND g.id = ANY(ARRAY(
    SELECT u.id
    FROM outlast.groups AS u
    WHERE u.sealed_at IS NULL AND u.closing IS NULL AND u.created_at < :before::bigint
    ORDER BY u.created_at
    LIMIT :limit::bigint
  ));

-- @mark_closed
UPDATE outlast.groups AS g
SET swept = true
WHERE g.id = ANY(ARRAY(
  SELECT c.id
  FROM outlast.groups AS c
  WHERE c.closing IS NOT NULL AND NOT c.swept
    AND (SELECT 1 FROM outlast.waiting AS w WHERE w.member_group_id = c.id LIMIT 1) IS NULL
    AND (SELECT 1 FROM outlast.open_runs AS o WHERE o.member_group_id = c.id LIMIT 1) IS NULL
  ORDER BY c.seq
  LIMIT :limit::bigint
));

-- @get
SELECT s.*
FROM (SELECT g.seq FROM outlast.groups AS g WHERE g.id = :id::uuid) AS g
CROSS JOIN LATERAL (SELECT * FROM outlast.group_state AS v WHERE v.seq = g.seq OFFSET 0) AS s;

-- @find
SELECT s.*
FROM (
  SELECT g.seq
  FROM outlast.groups AS g
  WHERE g.seq < coalesce(:before::bigint, 9223372036854775807)
  ORDER BY g.seq DESC
  LIMIT :limit::bigint
) AS g
CROSS JOIN LATERAL (SELECT * FROM outlast.group_state AS v WHERE v.seq = g.seq OFFSET 0) AS s
ORDER BY g.seq DESC;

-- @finished
SELECT
  g.id,
  (g.sealed_at IS NOT NULL OR g.closing IS NOT NULL)
  AND (SELECT 1 FROM outlast.waiting AS w WHERE w.member_group_id = g.id LIMIT 1) IS NULL
  AND (SELECT 1 FROM outlast.open_runs AS o WHERE o.member_group_id = g.id LIMIT 1) IS NULL
FROM outlast.groups AS g
WHERE g.id = ANY(:ids::uuid[]);

-- @closing
SELECT id, closing
FROM outlast.groups
WHERE closing IS NOT NULL AND NOT swept
ORDER BY seq
LIMIT :limit::bigint;

-- @any_to_mark
SELECT 1
FROM outlast.groups AS c
WHERE c.closing IS NOT NULL AND NOT c.swept
  AND (SELECT 1 FROM outlast.waiting AS w WHERE w.member_group_id = c.id LIMIT 1) IS NULL
  AND (SELECT 1 FROM outlast.open_runs AS o WHERE o.member_group_id = c.id LIMIT 1) IS NULL
LIMIT 1;

-- @any_expired
SELECT 1
FROM outlast.groups
WHERE sealed_at IS NULL AND closing IS NULL
  AND created_at < (SELECT coalesce(:now::bigint, outlast.micros())) - :span::bigint
LIMIT 1;

-- @remaining_members
-- Two index ranges in the order of the page: the cost is that of the page.
SELECT s.*
FROM (
  SELECT l.job, l.seq
  FROM (
    (
      SELECT w.job, w.seq
      FROM outlast.waiting AS w
      WHERE w.member_group_id = :id::uuid AND w.seq > :after::bigint
        AND EXISTS (
          SELECT 1 FROM outlast.groups AS g WHERE g.id = :id::uuid AND g.closing IS NOT NULL
        )
      ORDER BY w.seq
      LIMIT :limit::bigint
    )
    UNION ALL
    (
      SELECT o.job, o.seq
      FROM outlast.open_runs AS o
      WHERE o.member_group_id = :id::uuid AND o.seq > :after::bigint AND NOT o.cancel
        AND EXISTS (
          SELECT 1 FROM outlast.groups AS g WHERE g.id = :id::uuid AND g.closing = 'stop'
        )
      ORDER BY o.seq
      LIMIT :limit::bigint
    )
  ) AS l
  ORDER BY l.seq
  LIMIT :limit::bigint
) AS l
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = l.job OFFSET 0) AS s
ORDER BY l.seq;

-- @members
SELECT s.*
FROM outlast.jobs AS j
CROSS JOIN LATERAL (SELECT * FROM outlast.job_state AS v WHERE v.id = j.id OFFSET 0) AS s
WHERE j.member_group_id = :group::uuid
  AND j.seq < coalesce(:before::bigint, 9223372036854775807)
  AND (:queue::text IS NULL OR j.queue = :queue::text)
  AND (:type::text IS NULL OR j.type = :type::text)
  AND (:states::text[] IS NULL OR s.state = ANY(:states::text[]))
  AND (
    :labels::text[] IS NULL
    OR NOT EXISTS (
      SELECT 1 FROM unnest(:labels::text[]) AS l (label)
      WHERE NOT EXISTS (
        SELECT 1 FROM outlast.labels AS h WHERE h.label = l.label AND h.seq = j.seq
      )
    )
  )
ORDER BY j.seq DESC
LIMIT :limit::bigint;
