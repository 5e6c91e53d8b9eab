-- @get
SELECT stage, other, by_whom, until, grace FROM outlast.footing;

-- @lock
-- Of two who lead a store on, one waits.
SELECT pg_advisory_xact_lock(hashtextextended('outlast footing ' || :name::text, 0));

-- @patience
SELECT set_config('lock_timeout', :millis::text, true);

-- @shut
-- Whoever looked at the footing has committed, or looks again: until then nobody begins anything.
LOCK TABLE outlast.footing IN ACCESS EXCLUSIVE MODE;

-- @set
INSERT INTO outlast.footing (one, stage, other, by_whom, until, grace)
VALUES (1, :stage::text, :other::text, :transfer_id::text, :until::bigint, :grace::bigint)
ON CONFLICT (one) DO UPDATE
SET
  stage = excluded.stage,
  other = excluded.other,
  by_whom = excluded.by_whom,
  until = excluded.until,
  grace = excluded.grace;

-- @clear
DELETE FROM outlast.footing;

-- @require
SELECT CASE
  WHEN EXISTS (SELECT 1 FROM outlast.footing) THEN outlast.require_open(:now::bigint)
END;
