-- @get
SELECT stage, other, transfer_id, until, grace FROM outlast.transfer_status;

-- @lock
-- One change of the transfer status at a time.
SELECT pg_advisory_xact_lock(hashtextextended('outlast transfer ' || :name::text, 0));

-- @set_lock_timeout
SELECT set_config('lock_timeout', :millis::text, true);

-- @lock_table
-- ACCESS EXCLUSIVE waits for every transaction that has read the status, and blocks new readers
-- until the commit.
LOCK TABLE outlast.transfer_status IN ACCESS EXCLUSIVE MODE;

-- @set
INSERT INTO outlast.transfer_status (one, stage, other, transfer_id, until, grace)
VALUES (1, :stage::text, :other::text, :transfer_id::text, :until::bigint, :grace::bigint)
ON CONFLICT (one) DO UPDATE
SET
  stage = excluded.stage,
  other = excluded.other,
  transfer_id = excluded.transfer_id,
  until = excluded.until,
  grace = excluded.grace;

-- @clear
DELETE FROM outlast.transfer_status;

-- @require_open
SELECT CASE
  WHEN EXISTS (SELECT 1 FROM outlast.transfer_status) THEN outlast.require_open(:now::bigint)
END;
