-- How the store stands towards work while it is moved; no row: it is open. The other store's address
-- has no password.
CREATE TABLE outlast.footing (
  one integer PRIMARY KEY CHECK (one = 1),
  stage text COLLATE "C" NOT NULL
    CONSTRAINT footing_stage CHECK (stage IN ('filling', 'sealed', 'ready', 'moved')),
  other text NOT NULL CONSTRAINT other_size CHECK (length(other) BETWEEN 1 AND 2048),
  by_whom text COLLATE "C" NOT NULL
    CONSTRAINT by_size CHECK (length(by_whom) BETWEEN 1 AND 128),
  until bigint,  -- when a seal is over by itself
  grace bigint,  -- from when on workers hand back what still runs
  CONSTRAINT seal_ends CHECK ((stage = 'sealed') = (until IS NOT NULL))
);

-- The second lock: who was moved never takes work again.
CREATE TRIGGER footing_frozen BEFORE UPDATE ON outlast.footing FOR EACH ROW
WHEN (OLD.stage = 'moved')
EXECUTE FUNCTION outlast.refuse('outlast: a store is moved for good');

CREATE TRIGGER footing_kept BEFORE DELETE ON outlast.footing FOR EACH ROW
WHEN (OLD.stage = 'moved')
EXECUTE FUNCTION outlast.refuse('outlast: a store is moved for good');

-- Called only where there is a row; whoever asks gets it in the error, as JSON.
CREATE FUNCTION outlast.require_open(now bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  f outlast.footing;
BEGIN
  SELECT * INTO f FROM outlast.footing;
  IF FOUND AND (f.until IS NULL OR f.until > now) THEN
    RAISE EXCEPTION '%', json_build_array(f.stage, f.other, f.by_whom, f.until, f.grace)
      USING ERRCODE = 'HF001';
  END IF;
  RETURN true;
END $$;

-- Events that come from another server have numbers that this one may not have reached: by so many
-- transactions its own are ahead. A constant, which costs a statement nothing.
CREATE FUNCTION outlast.event_epoch() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT 0::bigint $$;

ALTER TABLE outlast.events ALTER COLUMN id SET DEFAULT (
  ((pg_current_xact_id()::text::bigint + outlast.event_epoch()) << 24)
  | (nextval('outlast.event_numbers') & 16777215)
);

CREATE FUNCTION outlast.raise_events(last bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  ahead bigint := (last >> 24) + 1 - pg_current_xact_id()::text::bigint;
BEGIN
  IF ahead > outlast.event_epoch() THEN
    EXECUTE format(
      'CREATE OR REPLACE FUNCTION outlast.event_epoch() RETURNS bigint LANGUAGE sql IMMUTABLE '
      'PARALLEL SAFE AS $epoch$ SELECT %s::bigint $epoch$',
      ahead
    );
  END IF;
END $$;
