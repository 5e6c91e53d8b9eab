-- @server
SELECT current_setting('server_version_num')::integer;

-- @state
-- Whether the schema holds any table, and whether they belong to Outlast.
SELECT
  EXISTS (
    SELECT 1 FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema::text
  ),
  EXISTS (
    SELECT 1 FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema::text AND c.relname = 'meta'
      AND pg_catalog.obj_description(c.oid, 'pg_class') = 'Outlast'
  );

-- @lock
-- One migration of a schema at a time.
SELECT pg_advisory_xact_lock(hashtextextended('outlast migrate ' || :name::text, 0));

-- @create
CREATE SCHEMA IF NOT EXISTS outlast;

-- @create_meta
DO $$ BEGIN
  CREATE TABLE outlast.meta (
    one integer PRIMARY KEY CHECK (one = 1),
    version integer NOT NULL
  );
  COMMENT ON TABLE outlast.meta IS 'Outlast';
END $$;

-- @init_meta
INSERT INTO outlast.meta (one, version) VALUES (1, 0);

-- @version
SELECT version FROM outlast.meta;

-- @set_version
UPDATE outlast.meta SET version = :version::integer;

-- @events_ahead
-- Whether an event has a higher transaction number than this server has given out: the tables were
-- restored from the dump of another server.
SELECT coalesce(
  (SELECT max(id) FROM outlast.events) >> 24
    >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + outlast.event_epoch(),
  false
);

-- @raise_events
SELECT outlast.raise_events((SELECT max(id) FROM outlast.events))::text;
