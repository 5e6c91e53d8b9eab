-- @begin
-- Timeouts at the server end the transaction if the worker dies.
WITH u AS (
  INSERT INTO outlast.open_handler_transactions (id) VALUES (gen_random_uuid()) RETURNING id
)
SELECT
  u.id::text,
  pg_backend_pid(),
  pg_current_xact_id()::text,
  set_config('statement_timeout', :millis::text, true),
  set_config('idle_in_transaction_session_timeout', :millis::text, true)
FROM u;

-- @restore
-- Resets what the handler may have set.
SELECT
  set_config('role', 'none', true),
  set_config('statement_timeout', '0', true),
  set_config('lock_timeout', '0', true),
  set_config('enable_seqscan', 'off', true),
  set_config('enable_hashjoin', 'off', true),
  set_config('enable_mergejoin', 'off', true),
  set_config('jit', 'off', true);

-- @finish
-- No row if the handler ended the transaction: the row was rolled back with it.
DELETE FROM outlast.open_handler_transactions WHERE id = :id::text::uuid;

-- @terminate
-- Only this transaction: the session may have begun another one.
SELECT pg_terminate_backend(pid)
FROM pg_catalog.pg_stat_activity
WHERE pid = :pid::integer AND backend_xid = :xid::text::xid8::xid;
