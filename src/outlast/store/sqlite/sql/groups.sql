-- @add
INSERT INTO outlast_groups (id, name, mode, on_failure, total, created_at)
VALUES (:id, :name, :mode, :on_failure, :total, :now)
ON CONFLICT (id) DO NOTHING;

-- @membership
SELECT seq, sealed_at IS NOT NULL, closing, mode FROM outlast_groups WHERE id = :id;

-- @seal
UPDATE outlast_groups
SET sealed_at = :now
WHERE id = :id AND sealed_at IS NULL AND closing IS NULL
  AND total = (
    SELECT count(*) FROM outlast_jobs AS j WHERE j.member_of = outlast_groups.seq AND j.root IS NULL
  );

-- @unblock
UPDATE outlast_waiting
SET state = 'scheduled'
WHERE job IN (
  SELECT w.job FROM outlast_waiting AS w INDEXED BY outlast_waiting_member_of
  WHERE w.member_of = :group_seq AND w.state = 'blocked'
  ORDER BY w.job
  LIMIT :limit
);

-- @unblock_next
UPDATE outlast_waiting
SET state = 'scheduled'
WHERE job = (
    SELECT w.job FROM outlast_waiting AS w INDEXED BY outlast_waiting_member_of
    WHERE w.member_of = :group_seq AND w.job > :root AND w.state = 'blocked'
    ORDER BY w.job
    LIMIT 1
  )
  AND EXISTS (
    SELECT 1 FROM outlast_groups WHERE seq = :group_seq AND closing IS NULL AND sealed_at IS NOT NULL
  );

-- @close
UPDATE outlast_groups
SET closing = :closing, reason = :reason
WHERE seq = :group_seq AND closing IS NULL;

-- @record_stop
INSERT INTO outlast_events (job, at, kind, token, reason, detail)
SELECT :job, :now, 'group_stopped', :token, closing, id FROM outlast_groups WHERE seq = :group_seq;

-- @stop
UPDATE outlast_groups
SET closing = :closing, reason = :reason
WHERE id = :id AND closing IS NULL
  AND EXISTS (SELECT 1 FROM outlast_live_groups AS l WHERE l.seq = outlast_groups.seq);

-- @expire
UPDATE outlast_groups
SET closing = 'stop', reason = :reason
WHERE seq IN (
  SELECT seq FROM outlast_groups INDEXED BY outlast_groups_unsealed
  WHERE sealed_at IS NULL AND closing IS NULL AND created_at < :before
  ORDER BY created_at
  LIMIT :limit
);

-- @mark_closed
UPDATE outlast_groups
SET swept = 1
WHERE seq IN (
  SELECT g.seq FROM outlast_groups AS g INDEXED BY outlast_groups_closing
  WHERE g.closing IS NOT NULL AND NOT g.swept
    AND NOT EXISTS (SELECT 1 FROM outlast_live_groups AS l WHERE l.seq = g.seq)
  ORDER BY g.seq
  LIMIT :limit
);

-- @get
SELECT s.* FROM outlast_group_state AS s WHERE s.id = :id;

-- @find
SELECT s.*
FROM outlast_group_state AS s
WHERE s.seq < coalesce(:before, 9223372036854775807)
ORDER BY s.seq DESC
LIMIT :limit;

-- @finished
SELECT g.id, NOT EXISTS (SELECT 1 FROM outlast_live_groups AS l WHERE l.seq = g.seq)
FROM json_each(:ids) AS i
CROSS JOIN outlast_groups AS g ON g.id = i.value;

-- @closing
SELECT id, closing FROM outlast_groups INDEXED BY outlast_groups_closing
WHERE closing IS NOT NULL AND NOT swept
ORDER BY seq
LIMIT :limit;

-- @closable
SELECT 1
FROM outlast_groups AS g INDEXED BY outlast_groups_closing
WHERE g.closing IS NOT NULL AND NOT g.swept
  AND NOT EXISTS (SELECT 1 FROM outlast_live_groups AS l WHERE l.seq = g.seq)
LIMIT 1;

-- @expired
SELECT 1
FROM outlast_groups INDEXED BY outlast_groups_unsealed
WHERE sealed_at IS NULL AND closing IS NULL AND created_at < :before
LIMIT 1;

-- @remaining
-- Two index ranges in page order, so that the cost is that of the page.
SELECT s.*
FROM (
  SELECT * FROM (
    SELECT w.job
    FROM outlast_groups AS g
    CROSS JOIN outlast_waiting AS w INDEXED BY outlast_waiting_member_of ON w.member_of = g.seq
    WHERE g.id = :id AND g.closing IS NOT NULL AND w.job > :after
    ORDER BY w.job
    LIMIT :limit
  )
  UNION ALL
  SELECT * FROM (
    SELECT o.job
    FROM outlast_groups AS g
    CROSS JOIN outlast_open_runs AS o INDEXED BY outlast_open_member_of ON o.member_of = g.seq
    WHERE g.id = :id AND g.closing = 'stop' AND o.job > :after AND NOT o.cancel
    ORDER BY o.job
    LIMIT :limit
  )
) AS l
CROSS JOIN outlast_job_state AS s ON s.seq = l.job
ORDER BY l.job
LIMIT :limit;

-- @members
SELECT s.*
FROM outlast_groups AS g
CROSS JOIN outlast_jobs AS j INDEXED BY outlast_jobs_member_of ON j.member_of = g.seq
CROSS JOIN outlast_job_state AS s ON s.seq = j.seq
WHERE g.id = :group
  AND j.seq < coalesce(:before, 9223372036854775807)
  AND (:queue IS NULL OR s.queue = :queue)
  AND (:type IS NULL OR s.type = :type)
  AND (:states IS NULL OR s.state IN (SELECT value FROM json_each(:states)))
  AND (
    :labels IS NULL
    OR NOT EXISTS (
      SELECT 1 FROM json_each(:labels) AS l
      WHERE NOT EXISTS (
        SELECT 1 FROM outlast_labels AS h WHERE h.label = l.value AND h.job = j.seq
      )
    )
  )
ORDER BY j.seq DESC
LIMIT :limit;
