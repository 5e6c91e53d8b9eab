-- @pick
-- The chains whose last job ended before that moment, oldest first, by their roots. The rows of their
-- last jobs are locked: nobody brings a successor meanwhile. Who is just doing so is passed over.
SELECT coalesce(j.root, j.id)
FROM (
  SELECT e.job, e.at, e.seq FROM outlast.ends AS e
  WHERE e.state IN ('succeeded', 'skipped', 'cancelled') AND e.at < :before::bigint
    AND (SELECT s.id FROM outlast.jobs AS s WHERE s.retry_of = e.job) IS NULL
    AND (SELECT k.job FROM outlast.grouped AS k WHERE k.job = e.job) IS NULL
  ORDER BY e.at, e.seq
  LIMIT :limit::bigint
) AS e
JOIN outlast.jobs AS j ON j.id = e.job
FOR UPDATE OF j SKIP LOCKED;

-- @chains
-- Every job of these chains, its group, and whether it has ended.
SELECT r.root, j.id, j.grp, (SELECT 1 FROM outlast.ends AS e WHERE e.job = j.id) IS NOT NULL
FROM unnest(:roots::uuid[]) AS r (root)
CROSS JOIN LATERAL (
  SELECT i.id, i.grp FROM outlast.jobs AS i WHERE i.id = r.root
  UNION ALL
  SELECT i.id, i.grp FROM outlast.jobs AS i WHERE i.root = r.root
) AS j;

-- @reservations
DELETE FROM outlast.reservations WHERE status <> 'active' AND job = ANY(:jobs::uuid[]);

-- @jobs
-- First the jobs, since nothing of a job that is stored may go.
DELETE FROM outlast.jobs WHERE id = ANY(:jobs::uuid[]);

-- @runs
DELETE FROM outlast.runs WHERE job = ANY(:jobs::uuid[]);

-- @ends
DELETE FROM outlast.ends WHERE job = ANY(:jobs::uuid[]);

-- @events
DELETE FROM outlast.events WHERE job = ANY(:jobs::uuid[]);

-- @groups
-- A group goes with the last of its members.
DELETE FROM outlast.groups AS g
WHERE g.id = ANY(:groups::uuid[])
  AND (SELECT 1 FROM outlast.jobs AS j WHERE j.grp = g.id LIMIT 1) IS NULL;

-- @empty_groups
-- Those that were stopped before they had any.
DELETE FROM outlast.groups AS g
WHERE g.sealed_at IS NULL AND g.swept AND g.created_at < :before::bigint
  AND NOT EXISTS (SELECT 1 FROM outlast.jobs AS j WHERE j.grp = g.id);
