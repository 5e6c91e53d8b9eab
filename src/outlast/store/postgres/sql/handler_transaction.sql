-- @begin
-- Bounded at the server too, in case that nobody is left to end it.
WITH u AS (INSERT INTO outlast.open_handler_transactions (id) VALUES (gen_random_uuid()) RETURNING id)
SELECT
  u.id::text,
  pg_backend_pid(),
  pg_current_xact_id()::text,
  set_config('statement_timeout', :millis::text, true),
  set_config('idle_in_transaction_session_timeout', :millis::text, true)
FROM u;

-- @restore
-- What the handler may have set counts no more.
SELECT
  set_config('role', 'none', true),
  set_config('statement_timeout', '0', true),
  set_config('lock_timeout', '0', true),
  set_config('enable_seqscan', 'off', true),
  set_config('enable_hashjoin', 'off', true),
  set_config('enable_mergejoin', 'off', true),
  set_config('jit', 'off', true);

-- @finish
-- Gone is the row only if the transaction was ended.
DELETE FROM outlast.open_handler_transactions WHERE id = :id::text::uuid;

-- @terminate
-- Whatever it does: the very transaction, should its process have gone on to another.
SELECT pg_terminate_backend(pid)
FROM pg_catalog.pg_stat_activity
WHERE pid = :pid::integer AND backend_xid::text = :xid::text;
