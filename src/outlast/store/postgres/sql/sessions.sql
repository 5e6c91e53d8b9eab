-- @own
-- Process id and start time in microseconds: together they name a session for good.
SELECT a.pid, (extract(epoch FROM a.backend_start) * 1000000)::bigint
FROM pg_stat_get_activity(pg_backend_pid()) AS a;

-- @is_working
-- Whether the session runs a statement; no row if it has ended. If the server does not track
-- activity, every session counts as working.
SELECT coalesce(a.state, '') NOT LIKE 'idle%'
FROM pg_stat_get_activity(:pid::integer) AS a
WHERE (extract(epoch FROM a.backend_start) * 1000000)::bigint = :since::bigint;

-- @end
-- Terminates the session and waits for its end. False if it lasts; no row if it had ended.
SELECT pg_terminate_backend(a.pid, :millis::bigint)
FROM pg_stat_get_activity(:pid::integer) AS a
WHERE (extract(epoch FROM a.backend_start) * 1000000)::bigint = :since::bigint;
