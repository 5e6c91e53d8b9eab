-- How the store stands towards work while it is moved; no row: it is open. The other store's address
-- has no password.
CREATE TABLE outlast_footing (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  stage TEXT NOT NULL
    CONSTRAINT footing_stage CHECK (stage IN ('filling', 'sealed', 'ready', 'moved')),
  other TEXT NOT NULL CONSTRAINT other_size CHECK (length(other) BETWEEN 1 AND 2048),
  by_whom TEXT NOT NULL CONSTRAINT by_size CHECK (length(by_whom) BETWEEN 1 AND 128),
  until INTEGER,  -- when a seal is over by itself
  grace INTEGER,  -- from when on workers hand back what still runs
  CONSTRAINT seal_ends CHECK ((stage = 'sealed') = (until IS NOT NULL))
);

-- The second lock: who was moved never takes work again.
CREATE TRIGGER outlast_footing_frozen BEFORE UPDATE ON outlast_footing
WHEN OLD.stage = 'moved'
BEGIN SELECT RAISE(ABORT, 'outlast: a store is moved for good'); END;

CREATE TRIGGER outlast_footing_kept BEFORE DELETE ON outlast_footing
WHEN OLD.stage = 'moved'
BEGIN SELECT RAISE(ABORT, 'outlast: a store is moved for good'); END;
