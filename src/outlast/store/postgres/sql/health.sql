-- @server
-- Settings of the server that an operator should know.
SELECT
  pg_is_in_recovery(),
  current_setting('fsync') = 'on',
  current_setting('synchronous_commit') <> 'off',
  current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on',
  (
    SELECT count(*)
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema::text AND 'autovacuum_enabled=false' = ANY (c.reloptions)
  ),
  pg_notification_queue_usage(),
  current_setting('transaction_isolation');

-- @vacuum_blockers
-- Sessions, prepared transactions and replication slots whose old snapshot keeps vacuum from
-- removing deleted rows.
SELECT 'session', a.pid::text, coalesce(a.usename::text, '?'), a.application_name,
  coalesce(a.state, '?'), extract(epoch FROM clock_timestamp() - a.xact_start)::bigint
FROM pg_catalog.pg_stat_activity AS a
WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
  AND a.datname = current_database()
  AND a.backend_type = 'client backend'
  AND a.xact_start < clock_timestamp() - make_interval(secs => :long::double precision)
UNION ALL
SELECT 'prepared', p.gid, p.owner::text, '', '',
  extract(epoch FROM clock_timestamp() - p.prepared)::bigint
FROM pg_catalog.pg_prepared_xacts AS p
WHERE p.database = current_database()
  AND p.prepared < clock_timestamp() - make_interval(secs => :long::double precision)
UNION ALL
SELECT 'slot', s.slot_name::text, '', '', '', 0
FROM pg_catalog.pg_replication_slots AS s
WHERE s.xmin IS NOT NULL AND NOT s.active
ORDER BY 6 DESC
LIMIT 5;

-- @waiting_for_notify
-- Every commit with a NOTIFY acquires this lock, one after the other.
SELECT count(*)
FROM pg_catalog.pg_locks AS l
WHERE l.locktype = 'object' AND l.classid = 'pg_catalog.pg_database'::regclass AND l.objid = 0
  AND NOT l.granted;

-- @lock_sessions
-- Sessions that hold a named lock: each is in a transaction, which pins a connection of a pooler.
SELECT count(DISTINCT l.pid)
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted
  AND a.datname = current_database() AND a.state = 'idle in transaction';
