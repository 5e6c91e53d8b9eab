-- @set_timeouts
-- No timeout ends this transaction, and TCP keepalive reports a dead client within half a minute.
-- The join skips settings that the server does not know.
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
-- Also returns the session, to terminate it if its connection breaks.
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
-- The holder may just have died: its session ends a moment after its process.
SELECT
  CASE
    WHEN :shared::boolean THEN pg_advisory_xact_lock_shared(hashtextextended(:name::text, 0))::text
    ELSE pg_advisory_xact_lock(hashtextextended(:name::text, 0))::text
  END;

-- @drop_snapshot
-- Ends the snapshot of the last statement, which would block vacuum until the next one.
SET LOCAL lock_timeout = 0;

-- @free
-- Each free lock is held until this statement ends.
SELECT n.name
FROM unnest(:names::text[], :keys::text[]) AS n (name, key)
WHERE pg_try_advisory_xact_lock(hashtextextended(n.key, 0));
