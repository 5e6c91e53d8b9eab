-- @get
SELECT stage, other, transfer_id, until, grace FROM outlast_transfer_status;

-- @set
INSERT INTO outlast_transfer_status (one, stage, other, transfer_id, until, grace)
VALUES (1, :stage, :other, :transfer_id, :until, :grace)
ON CONFLICT (one) DO UPDATE
SET
  stage = excluded.stage,
  other = excluded.other,
  transfer_id = excluded.transfer_id,
  until = excluded.until,
  grace = excluded.grace;

-- @clear
DELETE FROM outlast_transfer_status;
