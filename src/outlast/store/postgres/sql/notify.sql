-- @send
SELECT pg_notify(n.channel, n.payload)
FROM unnest(:channels::text[], :payloads::text[]) AS n (channel, payload);
