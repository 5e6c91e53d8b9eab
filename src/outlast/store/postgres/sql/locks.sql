-- @set_timeouts
-- Nothing ends this transaction but its end, and the server notices within half a minute when the
-- machine at the other end is gone. Not every server knows every one of these settings.
SELECT set_config(s.name, w.value, true)
FROM (
  VALUES
    ('idle_in_transaction_session_timeout', '0'),
    ('transaction_timeout', '0'),
    ('statement_timeout', '0'),
    ('tcp_keepalives_idle', '10'),
    ('tcp_keepalives_interval', '5'),
    ('tcp_keepalives_count', '3'),
    ('lock_timeout', '100ms')
) AS w (name, value)
JOIN pg_catalog.pg_settings AS s ON s.name = w.name;

-- @try
-- And which session this is, for when it breaks.
SELECT
  CASE
    WHEN :shared::boolean
      THEN pg_try_advisory_xact_lock_shared(hashtextextended(:name::text, 0))
    ELSE pg_try_advisory_xact_lock(hashtextextended(:name::text, 0))
  END,
  a.pid,
  (extract(epoch FROM a.backend_start) * 1000000)::bigint
FROM pg_stat_get_activity(pg_backend_pid()) AS a;

-- @wait
-- Whoever had it may be dying just now: its session ends a moment after its process.
SELECT
  CASE
    WHEN :shared::boolean THEN pg_advisory_xact_lock_shared(hashtextextended(:name::text, 0))::text
    ELSE pg_advisory_xact_lock(hashtextextended(:name::text, 0))::text
  END;

-- @drop_snapshot
-- Says nothing new. But what was asked last keeps its snapshot, and vacuum waits for that, until
-- something else is asked.
SET LOCAL lock_timeout = 0;

-- @terminate_session
-- A session of our own whose connection broke, but which the server still takes for alive.
SELECT pg_terminate_backend(a.pid)
FROM pg_stat_get_activity(:pid::integer) AS a
WHERE (extract(epoch FROM a.backend_start) * 1000000)::bigint = :since::bigint;

-- @free
-- Each is taken for as long as this statement runs.
SELECT n.name
FROM unnest(:names::text[], :keys::text[]) AS n (name, key)
WHERE pg_try_advisory_xact_lock(hashtextextended(n.key, 0));
