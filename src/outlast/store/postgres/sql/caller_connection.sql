-- @server_identity
-- What identifies the server, database and schema of a connection, and its description. Catalog
-- reads need no privilege and raise no error.
SELECT
  format(
    '%s %s %s',
    extract(epoch FROM pg_postmaster_start_time()),
    (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()),
    (
      SELECT c.oid FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      WHERE n.nspname = :schema::text AND c.relname = 'meta'
    )
  ),
  format(
    'database %s at %s', current_database(),
    coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'a local socket')
  );

-- @notify
-- Sent to idle workers when the caller commits.
SELECT pg_notify(:channel::text, :text::text);
