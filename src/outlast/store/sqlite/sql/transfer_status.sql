-- @get
SELECT stage, other, by_whom, until, grace FROM outlast_footing;

-- @set
INSERT INTO outlast_footing (one, stage, other, by_whom, until, grace)
VALUES (1, :stage, :other, :by, :until, :grace)
ON CONFLICT (one) DO UPDATE
SET
  stage = excluded.stage,
  other = excluded.other,
  by_whom = excluded.by_whom,
  until = excluded.until,
  grace = excluded.grace;

-- @clear
DELETE FROM outlast_footing;
