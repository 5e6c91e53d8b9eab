-- A request is in `jobs` and is not rewritten. Live rows are few and separate from history: a job is
-- in exactly one of `waiting`, `open_runs` and `ends`. Times are UTC microseconds since 1970.

CREATE TABLE outlast_jobs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE CONSTRAINT id_shape CHECK (length(id) = 36),
  type TEXT NOT NULL
    CONSTRAINT type_name CHECK (length(type) BETWEEN 1 AND 128 AND type NOT GLOB '*[^A-Za-z0-9_.:-]*'),
  name TEXT NOT NULL
    CONSTRAINT job_name CHECK (length(name) BETWEEN 1 AND 128 AND name NOT GLOB '*[^A-Za-z0-9_.:-]*'),
  queue TEXT NOT NULL
    CONSTRAINT queue_name CHECK (length(queue) BETWEEN 1 AND 128 AND queue NOT GLOB '*[^A-Za-z0-9_.:-]*'),
  delivery TEXT NOT NULL CONSTRAINT known_delivery CHECK (delivery IN ('lease', 'linked', 'once')),
  params TEXT NOT NULL
    CONSTRAINT params_size CHECK (length(CAST(params AS BLOB)) <= 262144)
    CONSTRAINT params_json CHECK (json_valid(params)),
  max_attempts INTEGER CONSTRAINT attempts CHECK (max_attempts BETWEEN 1 AND 1000000),
  created_at INTEGER NOT NULL,
  slot_at INTEGER,
  start_deadline INTEGER,
  retry_of INTEGER REFERENCES outlast_jobs (seq),
  root INTEGER REFERENCES outlast_jobs (seq),  -- NULL: it is the root of its chain
  group_id TEXT,
  member_of INTEGER REFERENCES outlast_groups (seq),  -- NULL: not a member, whatever its group_id
  template_id TEXT,
  template_at INTEGER,  -- version of its template: the time of its last write
  schedule_id TEXT,
  active_key TEXT,  -- as requested, also after the chain has released it
  metadata TEXT  -- headers, tags and meta; NULL: none
    CONSTRAINT metadata_size CHECK (length(CAST(metadata AS BLOB)) <= 8192)
    CONSTRAINT metadata_json CHECK (metadata IS NULL OR json_valid(metadata)),
  CONSTRAINT chain_links CHECK ((retry_of IS NULL) = (root IS NULL))
);
-- At most one successor per job, so that repeating a retry is safe.
CREATE UNIQUE INDEX outlast_jobs_retry_of ON outlast_jobs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX outlast_jobs_root ON outlast_jobs (root) WHERE root IS NOT NULL;
CREATE INDEX outlast_jobs_member_of ON outlast_jobs (member_of, seq) WHERE member_of IS NOT NULL;

-- What filters match: one row per tag and per scalar value of meta, newest job last. The rows follow
-- from `metadata`; a job without metadata has none.
CREATE TABLE outlast_labels (
  label TEXT NOT NULL,
  job INTEGER NOT NULL REFERENCES outlast_jobs (seq) ON DELETE CASCADE,
  PRIMARY KEY (label, job)
) WITHOUT ROWID;
CREATE INDEX outlast_labels_job ON outlast_labels (job);

-- Every statement that inserts jobs writes their labels by this trigger, as `core/metadata.py` defines
-- them.
CREATE TRIGGER outlast_jobs_labelled AFTER INSERT ON outlast_jobs
WHEN NEW.metadata IS NOT NULL
BEGIN
  INSERT INTO outlast_labels (label, job)
  SELECT 'tag:' || t.value, NEW.seq
  FROM json_each(NEW.metadata, '$.tags') AS t
  UNION ALL
  SELECT 'meta.' || m.name || ':' || m.value, NEW.seq
  FROM (
    SELECT
      v.key AS name,
      CASE v.type WHEN 'text' THEN v.value ELSE NEW.metadata -> v.fullkey END AS value
    FROM json_each(NEW.metadata, '$.meta') AS v
    WHERE v.type NOT IN ('object', 'array')
  ) AS m
  WHERE length(m.value) <= 256;
END;

CREATE TABLE outlast_waiting (
  job INTEGER PRIMARY KEY REFERENCES outlast_jobs (seq),
  state TEXT NOT NULL
    CONSTRAINT waiting_state CHECK (state IN ('blocked', 'scheduled', 'queued', 'retry_wait')),
  queue TEXT NOT NULL,
  type TEXT NOT NULL,
  name TEXT NOT NULL,
  delivery TEXT NOT NULL,
  priority INTEGER NOT NULL CONSTRAINT priority_range CHECK (priority BETWEEN -32768 AND 32767),
  position INTEGER NOT NULL,
  available_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  start_deadline INTEGER,
  token INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  losses INTEGER NOT NULL,
  member_of INTEGER,
  -- A started `once` or `linked` job never waits again.
  CONSTRAINT runs_again CHECK (token = 0 OR delivery = 'lease')
);
-- The claim order by type, so that a claim skips the types that its worker does not serve.
CREATE INDEX outlast_waiting_ready ON outlast_waiting
  (queue, type, priority DESC, position, available_at, created_at, job)
  WHERE state = 'queued';
CREATE INDEX outlast_waiting_due ON outlast_waiting (available_at, job)
  WHERE state IN ('scheduled', 'retry_wait');
CREATE INDEX outlast_waiting_deadline ON outlast_waiting (start_deadline, job)
  WHERE start_deadline IS NOT NULL;
CREATE INDEX outlast_waiting_once ON outlast_waiting
  (name, queue, priority DESC, position, available_at, created_at, job)
  WHERE delivery = 'once' AND state = 'queued';
-- Jobs with a position, in order; jobs of a `scheduled` queue have 0 unless they were moved.
CREATE INDEX outlast_waiting_position ON outlast_waiting
  (queue, priority, position, available_at, created_at, job)
  WHERE position <> 0;
-- Blocked jobs without a position, for a move that gives them one.
CREATE INDEX outlast_waiting_blocked ON outlast_waiting
  (queue, priority, available_at, created_at, job)
  WHERE state = 'blocked' AND position = 0;
CREATE INDEX outlast_waiting_member_of ON outlast_waiting (member_of, job) WHERE member_of IS NOT NULL;

-- Every worker that ran a job has a row, to which its runs refer. The columns after `boot_id` are set
-- while it is registered: `started_at` is NULL otherwise.
CREATE TABLE outlast_workers (
  id INTEGER PRIMARY KEY,
  instance_id TEXT NOT NULL CONSTRAINT instance_name CHECK (length(instance_id) BETWEEN 1 AND 128),
  boot_id TEXT NOT NULL,
  started_at INTEGER,
  seen_at INTEGER,
  stopped_at INTEGER,
  alive_until INTEGER,  -- of the monotonic clock of the boot in outlast_meta
  info TEXT CONSTRAINT info_json CHECK (info IS NULL OR json_valid(info)),
  UNIQUE (instance_id, boot_id),
  CONSTRAINT registered CHECK (
    (started_at IS NULL) = (info IS NULL)
    AND (started_at IS NULL) = (seen_at IS NULL)
    AND (started_at IS NULL) = (alive_until IS NULL)
  )
);
CREATE INDEX outlast_workers_registered ON outlast_workers (started_at)
  WHERE started_at IS NOT NULL;
-- The unknown worker, holder of runs whose worker record is missing.
INSERT INTO outlast_workers (id, instance_id, boot_id) VALUES (0, '?', '?');

-- The row is the lease: a finish that finds no row, or another token, is stale.
CREATE TABLE outlast_open_runs (
  job INTEGER PRIMARY KEY REFERENCES outlast_jobs (seq),
  run_id TEXT NOT NULL,
  token INTEGER NOT NULL CONSTRAINT token_rises CHECK (token > 0),
  worker INTEGER NOT NULL REFERENCES outlast_workers (id),
  started_at INTEGER NOT NULL,
  lease_until INTEGER NOT NULL,  -- of the monotonic clock of the boot in outlast_meta
  cancel INTEGER NOT NULL DEFAULT 0,
  artifacts TEXT NOT NULL DEFAULT '[]'
    CONSTRAINT artifacts_size CHECK (length(CAST(artifacts AS BLOB)) <= 262144)
    CONSTRAINT artifacts_json CHECK (json_valid(artifacts)),
  progress TEXT
    CONSTRAINT progress_size CHECK (length(CAST(progress AS BLOB)) <= 4096)
    CONSTRAINT progress_json CHECK (progress IS NULL OR json_valid(progress)),
  queue TEXT NOT NULL,
  name TEXT NOT NULL,
  delivery TEXT NOT NULL,
  priority INTEGER NOT NULL,
  position INTEGER NOT NULL,
  available_at INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  losses INTEGER NOT NULL,
  member_of INTEGER,
  -- A job that runs at most once has one token.
  CONSTRAINT one_run CHECK (token = 1 OR delivery = 'lease')
);
CREATE UNIQUE INDEX outlast_open_name ON outlast_open_runs (name) WHERE delivery = 'once';
CREATE INDEX outlast_open_member_of ON outlast_open_runs (member_of, job) WHERE member_of IS NOT NULL;

CREATE TABLE outlast_runs (
  job INTEGER NOT NULL REFERENCES outlast_jobs (seq) ON DELETE CASCADE,
  token INTEGER NOT NULL,
  run_id TEXT NOT NULL UNIQUE,
  status TEXT NOT NULL CONSTRAINT run_status
    CHECK (status IN ('succeeded', 'failed', 'lost', 'released', 'skipped', 'cancelled')),
  reason TEXT,
  worker INTEGER NOT NULL REFERENCES outlast_workers (id),
  started_at INTEGER NOT NULL,
  finished_at INTEGER NOT NULL,
  error TEXT CONSTRAINT error_size CHECK (length(CAST(error AS BLOB)) <= 65536),
  result TEXT
    CONSTRAINT result_size CHECK (length(CAST(result AS BLOB)) <= 262144)
    CONSTRAINT result_json CHECK (result IS NULL OR json_valid(result)),
  exit_code INTEGER CONSTRAINT exit_code_range CHECK (exit_code BETWEEN -2147483648 AND 4294967295),
  log_path TEXT CONSTRAINT log_path_size CHECK (log_path <> '' AND length(log_path) <= 4096),
  artifacts TEXT NOT NULL DEFAULT '[]'
    CONSTRAINT artifacts_size CHECK (length(CAST(artifacts AS BLOB)) <= 262144)
    CONSTRAINT artifacts_json CHECK (json_valid(artifacts)),
  progress TEXT
    CONSTRAINT progress_size CHECK (length(CAST(progress AS BLOB)) <= 4096)
    CONSTRAINT progress_json CHECK (progress IS NULL OR json_valid(progress)),
  PRIMARY KEY (job, token)
) WITHOUT ROWID;

-- Finds workers without runs, whose rows can be deleted.
CREATE INDEX outlast_runs_worker ON outlast_runs (worker);

-- One end per job, by its primary key.
CREATE TABLE outlast_ends (
  job INTEGER PRIMARY KEY REFERENCES outlast_jobs (seq) ON DELETE CASCADE,
  state TEXT NOT NULL CONSTRAINT end_state
    CHECK (state IN ('succeeded', 'failed', 'dead_letter', 'skipped', 'cancelled')),
  reason TEXT,
  at INTEGER NOT NULL,
  queue TEXT NOT NULL,
  priority INTEGER NOT NULL,
  position INTEGER NOT NULL,
  available_at INTEGER NOT NULL,
  token INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  losses INTEGER NOT NULL
);
CREATE INDEX outlast_ends_state ON outlast_ends (state, at);
-- Finds the few unsuccessful jobs among many successes.
CREATE INDEX outlast_ends_unsuccessful ON outlast_ends (state, job) WHERE state <> 'succeeded';

-- Keys refer to the root of a chain. 'key' rows stay for ever, even after their job is pruned;
-- 'active' rows are deleted when the chain ends.
CREATE TABLE outlast_keys (
  scope TEXT NOT NULL CONSTRAINT key_scope CHECK (scope IN ('key', 'active')),
  key TEXT NOT NULL CONSTRAINT key_size CHECK (length(key) BETWEEN 1 AND 512),
  bucket TEXT NOT NULL CONSTRAINT bucket_size CHECK (length(bucket) <= 512),
  job_id TEXT NOT NULL,
  PRIMARY KEY (scope, key, bucket)
) WITHOUT ROWID;
CREATE INDEX outlast_keys_active ON outlast_keys (job_id) WHERE scope = 'active';

CREATE TABLE outlast_slots (
  series TEXT NOT NULL CONSTRAINT series_name
    CHECK (length(series) BETWEEN 1 AND 128 AND series NOT GLOB '*[^A-Za-z0-9_.:-]*'),
  slot_at INTEGER NOT NULL,
  outcome TEXT NOT NULL CONSTRAINT slot_outcome
    CHECK (outcome IN ('ran', 'late', 'manual', 'skipped', 'missed', 'coalesced', 'overlap')),
  planned INTEGER NOT NULL,  -- planned time of the trigger
  actual INTEGER NOT NULL,  -- time of the write
  schedule_id TEXT,
  job_id TEXT,
  reason TEXT CONSTRAINT reason_size CHECK (length(reason) <= 1024),
  PRIMARY KEY (series, slot_at),
  -- The job holds the slot for ever; a slot without a job may still be run by hand.
  CONSTRAINT slot_claim CHECK ((job_id IS NULL) = (outcome IN ('missed', 'coalesced', 'overlap')))
) WITHOUT ROWID;
CREATE INDEX outlast_slots_job ON outlast_slots (job_id) WHERE job_id IS NOT NULL;

-- A write replaces the row, so that no version is used twice; a trigger updates it.
CREATE TABLE outlast_schedules (
  version INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE CONSTRAINT id_shape CHECK (length(id) = 36),
  name TEXT NOT NULL UNIQUE CONSTRAINT schedule_name
    CHECK (length(name) BETWEEN 1 AND 128 AND name NOT GLOB '*[^A-Za-z0-9_.:-]*'),
  plan TEXT NOT NULL
    CONSTRAINT plan_size CHECK (length(CAST(plan AS BLOB)) <= 524288)
    CONSTRAINT plan_json CHECK (json_valid(plan)),
  enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  next_slot INTEGER,
  next_trigger_at INTEGER,
  last_triggered_at INTEGER,
  CONSTRAINT next_one CHECK ((next_slot IS NULL) = (next_trigger_at IS NULL))
);
CREATE INDEX outlast_schedules_due ON outlast_schedules (next_trigger_at, id)
  WHERE enabled AND next_trigger_at IS NOT NULL;

CREATE TABLE outlast_queues (
  name TEXT PRIMARY KEY
    CONSTRAINT queue_name CHECK (length(name) BETWEEN 1 AND 128 AND name NOT GLOB '*[^A-Za-z0-9_.:-]*'),
  ordering TEXT NOT NULL CHECK (ordering IN ('scheduled', 'position')),
  gap INTEGER NOT NULL CHECK (gap BETWEEN 1 AND 1000000),
  concurrency INTEGER CHECK (concurrency BETWEEN 1 AND 1000000),  -- NULL: no limit
  paused_at INTEGER,
  pause_reason TEXT,
  resume_at INTEGER,  -- NULL: until it is resumed
  CONSTRAINT pause CHECK (paused_at IS NOT NULL OR (pause_reason IS NULL AND resume_at IS NULL))
) WITHOUT ROWID;
-- Ends of runs read only queues with a limit.
CREATE INDEX outlast_queues_limited ON outlast_queues (name) WHERE concurrency IS NOT NULL;

-- While a reservation is active, claims of its queue select only its job.
CREATE TABLE outlast_reservations (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE CONSTRAINT id_shape CHECK (length(id) = 36),
  queue TEXT NOT NULL
    CONSTRAINT queue_name CHECK (length(queue) BETWEEN 1 AND 128 AND queue NOT GLOB '*[^A-Za-z0-9_.:-]*'),
  job_id TEXT NOT NULL,
  caller TEXT NOT NULL CONSTRAINT caller_name CHECK (length(caller) BETWEEN 1 AND 128),
  request TEXT NOT NULL CONSTRAINT request_size CHECK (length(request) BETWEEN 1 AND 512),
  status TEXT NOT NULL DEFAULT 'active'
    CONSTRAINT reservation_status CHECK (status IN ('active', 'released', 'expired')),
  reason TEXT,
  reserved_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  span INTEGER NOT NULL CHECK (span > 0),
  until INTEGER NOT NULL,  -- of the monotonic clock of the boot in outlast_meta
  ended_at INTEGER,
  CONSTRAINT reservation_end CHECK ((status = 'active') = (ended_at IS NULL))
);
-- At most one active reservation per queue.
CREATE UNIQUE INDEX outlast_reservations_active ON outlast_reservations (queue)
  WHERE status = 'active';
CREATE INDEX outlast_reservations_job ON outlast_reservations (job_id);

-- Groups of jobs. `closing` says how the remaining members end.
CREATE TABLE outlast_groups (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE CONSTRAINT id_shape CHECK (length(id) = 36),
  name TEXT CONSTRAINT group_name CHECK (length(name) BETWEEN 1 AND 512),
  mode TEXT NOT NULL CONSTRAINT group_mode CHECK (mode IN ('parallel', 'sequential')),
  on_failure TEXT NOT NULL CONSTRAINT group_failure CHECK (on_failure IN ('stop', 'continue', 'skip')),
  total INTEGER NOT NULL CONSTRAINT group_size CHECK (total BETWEEN 1 AND 1000000),
  created_at INTEGER NOT NULL,
  sealed_at INTEGER,  -- NULL: members may still be added
  closing TEXT CONSTRAINT group_closing CHECK (closing IN ('stop', 'skip')),
  reason TEXT,
  swept INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX outlast_groups_unsealed ON outlast_groups (created_at)
  WHERE sealed_at IS NULL AND closing IS NULL;
CREATE INDEX outlast_groups_abandoned ON outlast_groups (created_at)
  WHERE sealed_at IS NULL AND swept;
CREATE INDEX outlast_groups_closing ON outlast_groups (seq) WHERE closing IS NOT NULL AND NOT swept;

-- Small documents, written by compare-and-swap. A write replaces the row, so that no version is used
-- twice.
CREATE TABLE outlast_documents (
  version INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL
    CONSTRAINT kind_name CHECK (length(kind) BETWEEN 1 AND 128 AND kind NOT GLOB '*[^A-Za-z0-9_.:-]*'),
  key TEXT NOT NULL CONSTRAINT key_size CHECK (length(key) BETWEEN 1 AND 512),
  value TEXT NOT NULL
    CONSTRAINT value_size CHECK (length(CAST(value AS BLOB)) <= 262144)
    CONSTRAINT value_json CHECK (json_valid(value)),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  UNIQUE (kind, key)
);

-- Unusual events; the run itself records a routine claim and success.
CREATE TABLE outlast_events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  job INTEGER REFERENCES outlast_jobs (seq) ON DELETE CASCADE,  -- NULL: of no job
  queue TEXT,  -- set for an event of a queue
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  token INTEGER NOT NULL,
  run_id TEXT,
  reason TEXT,
  detail TEXT CONSTRAINT detail_size CHECK (length(CAST(detail AS BLOB)) <= 2097152)
);
CREATE INDEX outlast_events_job ON outlast_events (job);

-- Triggers refuse writes that would break an invariant, whatever the code does.
CREATE TRIGGER outlast_jobs_frozen BEFORE UPDATE ON outlast_jobs
WHEN NEW.seq IS NOT OLD.seq OR NEW.id IS NOT OLD.id OR NEW.type IS NOT OLD.type
  OR NEW.name IS NOT OLD.name OR NEW.queue IS NOT OLD.queue OR NEW.delivery IS NOT OLD.delivery
  OR NEW.max_attempts IS NOT OLD.max_attempts OR NEW.created_at IS NOT OLD.created_at
  OR NEW.slot_at IS NOT OLD.slot_at OR NEW.start_deadline IS NOT OLD.start_deadline
  OR NEW.retry_of IS NOT OLD.retry_of OR NEW.root IS NOT OLD.root
  OR NEW.group_id IS NOT OLD.group_id OR NEW.member_of IS NOT OLD.member_of
  OR NEW.template_id IS NOT OLD.template_id OR NEW.template_at IS NOT OLD.template_at
  OR NEW.schedule_id IS NOT OLD.schedule_id OR NEW.active_key IS NOT OLD.active_key
  OR NEW.metadata IS NOT OLD.metadata
  OR (NEW.params IS NOT OLD.params
    AND NOT EXISTS (SELECT 1 FROM outlast_waiting WHERE job = OLD.seq AND token = 0))
BEGIN SELECT RAISE(ABORT, 'outlast: a job is frozen at its first claim'); END;

CREATE TRIGGER outlast_jobs_kept BEFORE DELETE ON outlast_jobs
WHEN NOT EXISTS (SELECT 1 FROM outlast_ends WHERE job = OLD.seq)
BEGIN SELECT RAISE(ABORT, 'outlast: a job that has not ended cannot be deleted'); END;

CREATE TRIGGER outlast_runs_frozen BEFORE UPDATE ON outlast_runs
WHEN NEW.job IS NOT OLD.job OR NEW.token IS NOT OLD.token OR NEW.run_id IS NOT OLD.run_id
  OR NEW.status IS NOT OLD.status OR NEW.reason IS NOT OLD.reason OR NEW.worker IS NOT OLD.worker
  OR NEW.started_at IS NOT OLD.started_at OR NEW.finished_at IS NOT OLD.finished_at
  OR NEW.result IS NOT OLD.result OR NEW.log_path IS NOT OLD.log_path
  OR NEW.progress IS NOT OLD.progress
  OR (OLD.exit_code IS NOT NULL AND NEW.exit_code IS NOT OLD.exit_code)
  OR (OLD.error IS NOT NULL AND NEW.error IS NOT OLD.error)
  OR substr(NEW.artifacts, 1, length(OLD.artifacts) - 1)
    <> substr(OLD.artifacts, 1, length(OLD.artifacts) - 1)
BEGIN SELECT RAISE(ABORT, 'outlast: a closed run is frozen'); END;

CREATE TRIGGER outlast_runs_kept BEFORE DELETE ON outlast_runs
WHEN EXISTS (SELECT 1 FROM outlast_jobs WHERE seq = OLD.job)
BEGIN SELECT RAISE(ABORT, 'outlast: a run goes only with its job'); END;

CREATE TRIGGER outlast_open_frozen BEFORE UPDATE ON outlast_open_runs
WHEN NEW.job IS NOT OLD.job OR NEW.run_id IS NOT OLD.run_id OR NEW.token IS NOT OLD.token
  OR NEW.worker IS NOT OLD.worker OR NEW.started_at IS NOT OLD.started_at
  OR NEW.queue IS NOT OLD.queue OR NEW.name IS NOT OLD.name OR NEW.delivery IS NOT OLD.delivery
  OR NEW.priority IS NOT OLD.priority OR NEW.position IS NOT OLD.position
  OR NEW.available_at IS NOT OLD.available_at OR NEW.failures IS NOT OLD.failures
  OR NEW.losses IS NOT OLD.losses OR NEW.member_of IS NOT OLD.member_of OR NEW.cancel < OLD.cancel
  OR substr(NEW.artifacts, 1, length(OLD.artifacts) - 1)
    <> substr(OLD.artifacts, 1, length(OLD.artifacts) - 1)
BEGIN SELECT RAISE(ABORT, 'outlast: of an open run only lease, cancel mark, progress and artifacts change'); END;

CREATE TRIGGER outlast_open_unended BEFORE INSERT ON outlast_open_runs
WHEN EXISTS (SELECT 1 FROM outlast_ends WHERE job = NEW.job)
BEGIN SELECT RAISE(ABORT, 'outlast: an ended job never runs again'); END;

CREATE TRIGGER outlast_open_kept BEFORE DELETE ON outlast_open_runs
WHEN NOT EXISTS (SELECT 1 FROM outlast_runs WHERE job = OLD.job AND token = OLD.token)
BEGIN SELECT RAISE(ABORT, 'outlast: an open run goes only when it is closed'); END;

-- INSERT OR REPLACE deletes the present row without running any other trigger.
CREATE TRIGGER outlast_jobs_once BEFORE INSERT ON outlast_jobs
WHEN EXISTS (SELECT 1 FROM outlast_jobs WHERE seq = NEW.seq)
  OR EXISTS (SELECT 1 FROM outlast_jobs WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'outlast: that job is stored already'); END;

CREATE TRIGGER outlast_open_once BEFORE INSERT ON outlast_open_runs
WHEN EXISTS (SELECT 1 FROM outlast_open_runs WHERE job = NEW.job)
BEGIN SELECT RAISE(ABORT, 'outlast: that job runs already'); END;

CREATE TRIGGER outlast_runs_once BEFORE INSERT ON outlast_runs
WHEN EXISTS (SELECT 1 FROM outlast_runs WHERE job = NEW.job AND token = NEW.token)
  OR EXISTS (SELECT 1 FROM outlast_runs WHERE run_id = NEW.run_id)
BEGIN SELECT RAISE(ABORT, 'outlast: that run is closed already'); END;

CREATE TRIGGER outlast_ends_once BEFORE INSERT ON outlast_ends
WHEN EXISTS (SELECT 1 FROM outlast_ends WHERE job = NEW.job)
BEGIN SELECT RAISE(ABORT, 'outlast: that job has ended already'); END;

CREATE TRIGGER outlast_waiting_unended BEFORE INSERT ON outlast_waiting
WHEN EXISTS (SELECT 1 FROM outlast_ends WHERE job = NEW.job)
  OR EXISTS (SELECT 1 FROM outlast_open_runs WHERE job = NEW.job)
BEGIN SELECT RAISE(ABORT, 'outlast: a job that runs or has ended does not wait'); END;

CREATE TRIGGER outlast_waiting_frozen BEFORE UPDATE ON outlast_waiting
WHEN NEW.job IS NOT OLD.job OR NEW.queue IS NOT OLD.queue OR NEW.type IS NOT OLD.type
  OR NEW.name IS NOT OLD.name OR NEW.delivery IS NOT OLD.delivery
  OR NEW.created_at IS NOT OLD.created_at OR NEW.start_deadline IS NOT OLD.start_deadline
  OR NEW.token IS NOT OLD.token OR NEW.failures IS NOT OLD.failures
  OR NEW.losses IS NOT OLD.losses OR NEW.member_of IS NOT OLD.member_of
BEGIN SELECT RAISE(ABORT, 'outlast: of a waiting job only its place and state change'); END;

CREATE TRIGGER outlast_ends_alone BEFORE INSERT ON outlast_ends
WHEN EXISTS (SELECT 1 FROM outlast_waiting WHERE job = NEW.job)
  OR EXISTS (SELECT 1 FROM outlast_open_runs WHERE job = NEW.job)
BEGIN SELECT RAISE(ABORT, 'outlast: a job that waits or runs has not ended'); END;

CREATE TRIGGER outlast_ends_frozen BEFORE UPDATE ON outlast_ends
WHEN NOT (OLD.state = 'failed' AND NEW.state = 'dead_letter')
  OR NEW.job IS NOT OLD.job OR NEW.at IS NOT OLD.at OR NEW.queue IS NOT OLD.queue
  OR NEW.priority IS NOT OLD.priority OR NEW.position IS NOT OLD.position
  OR NEW.available_at IS NOT OLD.available_at OR NEW.token IS NOT OLD.token
  OR NEW.failures IS NOT OLD.failures OR NEW.losses IS NOT OLD.losses
BEGIN SELECT RAISE(ABORT, 'outlast: an end is final'); END;

CREATE TRIGGER outlast_ends_kept BEFORE DELETE ON outlast_ends
WHEN EXISTS (SELECT 1 FROM outlast_jobs WHERE seq = OLD.job)
BEGIN SELECT RAISE(ABORT, 'outlast: an end goes only with its job'); END;

CREATE TRIGGER outlast_slots_frozen BEFORE UPDATE ON outlast_slots
WHEN NEW.series IS NOT OLD.series OR NEW.slot_at IS NOT OLD.slot_at
  OR NEW.planned IS NOT OLD.planned
  OR (OLD.job_id IS NOT NULL
    AND (NEW.job_id IS NOT OLD.job_id OR NEW.schedule_id IS NOT OLD.schedule_id
      OR NEW.actual IS NOT OLD.actual OR NEW.reason IS NOT OLD.reason
      OR NEW.outcome NOT IN (OLD.outcome, 'skipped')))
  OR (OLD.job_id IS NULL AND NEW.outcome IS NOT 'manual')
BEGIN SELECT RAISE(ABORT, 'outlast: a slot is claimed once, for ever'); END;

CREATE TRIGGER outlast_slots_kept BEFORE DELETE ON outlast_slots
BEGIN SELECT RAISE(ABORT, 'outlast: slots are kept for ever'); END;

CREATE TRIGGER outlast_schedules_frozen BEFORE UPDATE ON outlast_schedules
WHEN NEW.version IS NOT OLD.version OR NEW.id IS NOT OLD.id OR NEW.name IS NOT OLD.name
  OR NEW.plan IS NOT OLD.plan OR NEW.enabled IS NOT OLD.enabled
  OR NEW.created_at IS NOT OLD.created_at OR NEW.updated_at IS NOT OLD.updated_at
BEGIN SELECT RAISE(ABORT, 'outlast: a schedule is written anew, and only its triggers move it on'); END;

CREATE TRIGGER outlast_groups_frozen BEFORE UPDATE ON outlast_groups
WHEN NEW.seq IS NOT OLD.seq OR NEW.id IS NOT OLD.id OR NEW.name IS NOT OLD.name
  OR NEW.mode IS NOT OLD.mode OR NEW.on_failure IS NOT OLD.on_failure
  OR NEW.total IS NOT OLD.total OR NEW.created_at IS NOT OLD.created_at
  OR (OLD.sealed_at IS NOT NULL AND NEW.sealed_at IS NOT OLD.sealed_at)
  OR (OLD.closing IS NOT NULL
    AND (NEW.closing IS NOT OLD.closing OR NEW.reason IS NOT OLD.reason))
  OR (NEW.closing IS NULL AND NEW.reason IS NOT NULL)
  OR NEW.swept < OLD.swept OR (NEW.swept AND NEW.closing IS NULL)
BEGIN SELECT RAISE(ABORT, 'outlast: a group is sealed once, closed once and then swept'); END;

-- Groups that are not over: unsealed, or with a member that waits or runs.
CREATE VIEW outlast_live_groups AS
SELECT g.seq, g.id
FROM outlast_groups AS g
WHERE g.sealed_at IS NULL AND g.closing IS NULL
  OR EXISTS (SELECT 1 FROM outlast_waiting AS w WHERE w.member_of = g.seq)
  OR EXISTS (SELECT 1 FROM outlast_open_runs AS o WHERE o.member_of = g.seq);

-- One row per group with the counts of its members; a chain counts by its last job.
CREATE VIEW outlast_group_state AS
SELECT
  g.id, g.seq, g.name, g.mode, g.on_failure, g.total, g.created_at, g.sealed_at, g.closing,
  g.reason,
  (
    SELECT json_group_object(c.state, c.number)
    FROM (
      SELECT
        coalesce(w.state, CASE WHEN o.job IS NOT NULL THEN 'running' END, e.state, 'running')
          AS state,
        count(*) AS number
      FROM outlast_jobs AS j INDEXED BY outlast_jobs_member_of
      LEFT JOIN outlast_waiting AS w ON w.job = j.seq
      LEFT JOIN outlast_open_runs AS o ON o.job = j.seq
      LEFT JOIN outlast_ends AS e ON e.job = j.seq
      WHERE j.member_of = g.seq
        AND NOT EXISTS (
          SELECT 1 FROM outlast_jobs AS s WHERE s.retry_of = j.seq AND +s.member_of = j.member_of
        )
      GROUP BY 1
    ) AS c
  ) AS counts
FROM outlast_groups AS g;

-- Jobs whose chain belongs to a group that is not over. The root decides: a manual retry is not a
-- member but keeps the links before it.
CREATE VIEW outlast_grouped AS
SELECT j.seq AS job
FROM outlast_jobs AS j
CROSS JOIN outlast_jobs AS r ON r.seq = coalesce(j.root, j.seq)
CROSS JOIN outlast_live_groups AS g ON g.seq = r.member_of;

-- One row per job in any state. A detached job counts as running; its failures and losses are those
-- of its runs and of its predecessor in the chain.
CREATE VIEW outlast_job_state AS
SELECT
  j.seq, j.id, j.type, j.name, j.params, j.queue, j.delivery, j.max_attempts, j.created_at,
  j.slot_at, j.start_deadline, p.id AS retry_of, coalesce(r.id, j.id) AS root_id,
  j.group_id, j.template_id, j.template_at, j.schedule_id,
  coalesce(w.state, CASE WHEN o.job IS NOT NULL THEN 'running' END, e.state, 'running') AS state,
  e.reason,
  coalesce(w.priority, o.priority, e.priority, 0) AS priority,
  coalesce(w.position, o.position, e.position, 0) AS position,
  coalesce(w.available_at, o.available_at, e.available_at, j.created_at) AS available_at,
  coalesce(
    w.token, o.token, e.token,
    (SELECT token FROM outlast_runs WHERE job = j.seq ORDER BY token DESC LIMIT 1),
    0
  ) AS token,
  coalesce(
    w.failures, o.failures, e.failures,
    (SELECT count(*) FROM outlast_runs WHERE job = j.seq AND status IN ('failed', 'lost'))
    + coalesce(
      (
        SELECT failures FROM outlast_ends
        WHERE job = j.retry_of
          AND EXISTS (SELECT 1 FROM outlast_events WHERE job = j.retry_of AND kind = 'chained')
      ),
      0
    )
  ) AS failures,
  coalesce(
    w.losses, o.losses, e.losses,
    (SELECT count(*) FROM outlast_runs WHERE job = j.seq AND status = 'lost')
    + coalesce(
      (
        SELECT losses FROM outlast_ends
        WHERE job = j.retry_of
          AND EXISTS (SELECT 1 FROM outlast_events WHERE job = j.retry_of AND kind = 'chained')
      ),
      0
    )
  ) AS losses,
  coalesce(o.cancel, 0) AS cancel_requested,
  k.instance_id AS holder,
  k.boot_id,
  coalesce(
    (SELECT started_at FROM outlast_runs WHERE job = j.seq ORDER BY token LIMIT 1),
    o.started_at
  ) AS started_at,
  e.at AS finished_at,
  o.lease_until,
  o.progress,
  j.active_key,
  j.metadata
FROM outlast_jobs AS j
LEFT JOIN outlast_jobs AS p ON p.seq = j.retry_of
LEFT JOIN outlast_jobs AS r ON r.seq = j.root
LEFT JOIN outlast_waiting AS w ON w.job = j.seq
LEFT JOIN outlast_open_runs AS o ON o.job = j.seq
LEFT JOIN outlast_ends AS e ON e.job = j.seq
LEFT JOIN outlast_workers AS k ON k.id = coalesce(
  o.worker,
  (SELECT worker FROM outlast_runs WHERE job = j.seq ORDER BY token DESC LIMIT 1)
);

-- The transfer status; no row means open. `other` is the URL of the other store without a password.
CREATE TABLE outlast_transfer_status (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  stage TEXT NOT NULL
    CONSTRAINT transfer_stage CHECK (stage IN ('filling', 'sealed', 'ready', 'moved')),
  other TEXT NOT NULL CONSTRAINT other_size CHECK (length(other) BETWEEN 1 AND 2048),
  transfer_id TEXT NOT NULL CONSTRAINT transfer_id_size CHECK (length(transfer_id) BETWEEN 1 AND 128),
  until INTEGER,  -- when a seal expires
  grace INTEGER,  -- from then on workers release open runs
  CONSTRAINT seal_ends CHECK ((stage = 'sealed') = (until IS NOT NULL))
);

-- A store that was moved never accepts work again.
CREATE TRIGGER outlast_transfer_status_frozen BEFORE UPDATE ON outlast_transfer_status
WHEN OLD.stage = 'moved'
BEGIN SELECT RAISE(ABORT, 'outlast: a store is moved for good'); END;

CREATE TRIGGER outlast_transfer_status_kept BEFORE DELETE ON outlast_transfer_status
WHEN OLD.stage = 'moved'
BEGIN SELECT RAISE(ABORT, 'outlast: a store is moved for good'); END;
