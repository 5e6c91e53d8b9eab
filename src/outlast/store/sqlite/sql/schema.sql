-- @data_version
-- Changes after every commit of another connection, in this process or another.
PRAGMA data_version;

-- @has_meta
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'outlast_meta';

-- @is_empty
SELECT count(*) = 0 FROM sqlite_schema;

-- @has_statistics
SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_stat1';

-- @drop_statistics
-- Statistics of an early day would mislead the planner later.
DELETE FROM sqlite_stat1 WHERE tbl GLOB 'outlast_*';

-- @create_meta
CREATE TABLE outlast_meta (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  version INTEGER NOT NULL,
  boot_id TEXT NOT NULL  -- the boot of this machine by whose monotonic clock leases are written
);

-- @init_meta
INSERT INTO outlast_meta (one, version, boot_id)
VALUES (1, 0, :boot);

-- @version
SELECT version FROM outlast_meta;

-- @set_version
UPDATE outlast_meta SET version = :version;

-- @same_boot
SELECT boot_id = :boot FROM outlast_meta;

-- @expire_leases
-- After a restart of the machine every lease has expired: its worker is dead.
UPDATE outlast_open_runs SET lease_until = -1;

-- @expire_workers
UPDATE outlast_workers SET alive_until = -1 WHERE started_at IS NOT NULL;

-- @expire_reservations
UPDATE outlast_reservations INDEXED BY outlast_reservations_active
SET until = -1
WHERE status = 'active';

-- @set_boot
UPDATE outlast_meta SET boot_id = :boot;

-- @temp_selected
-- Temporary tables are in memory, one set per connection.
CREATE TEMP TABLE outlast_selected (n INTEGER PRIMARY KEY, job INTEGER NOT NULL);

-- @temp_changes
CREATE TEMP TABLE outlast_changes (
  n INTEGER PRIMARY KEY,
  job INTEGER,
  token INTEGER,
  guard TEXT,
  to_state TEXT,
  run_status TEXT,
  result TEXT,
  kind TEXT,
  reason TEXT,
  end_reason TEXT,
  error TEXT,
  delay INTEGER NOT NULL DEFAULT 0,
  failures INTEGER,
  losses INTEGER,
  yields_to_cancel INTEGER NOT NULL DEFAULT 0,
  successor TEXT,
  successor_delay INTEGER,
  artifacts TEXT,
  expected_state TEXT,
  exit_code INTEGER,
  log_path TEXT,
  run_id TEXT,
  detail TEXT,
  member_of INTEGER,
  state_before TEXT,
  accepted INTEGER NOT NULL DEFAULT 0,
  on_record INTEGER NOT NULL DEFAULT 0,
  queue TEXT,
  priority INTEGER,
  position INTEGER,
  available_at INTEGER
);

-- @temp_finished
CREATE TEMP TABLE outlast_finished (
  n INTEGER PRIMARY KEY,
  job INTEGER NOT NULL,
  member_of INTEGER,
  root_id TEXT NOT NULL,
  token INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  worker INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  artifacts TEXT NOT NULL,
  progress TEXT,
  result TEXT,
  queue TEXT NOT NULL,
  priority INTEGER NOT NULL,
  position INTEGER NOT NULL,
  available_at INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  losses INTEGER NOT NULL
);
