-- @get
SELECT kind, key, value, version, created_at, updated_at
FROM outlast_documents
WHERE kind = :kind AND key = :key;

-- @all
SELECT kind, key, value, version, created_at, updated_at
FROM outlast_documents
WHERE kind = :kind
ORDER BY key;

-- @write
-- Replaced, not updated: the new row gets a number that no row before it had.
INSERT OR REPLACE INTO outlast_documents (kind, key, value, created_at, updated_at)
SELECT
  :kind, :key, :value, coalesce(r.created_at, :now), max(:now, coalesce(r.updated_at + 1, :now))
FROM (SELECT 1)
LEFT JOIN outlast_documents AS r ON r.kind = :kind AND r.key = :key
WHERE r.version IS :expected;

-- @delete
DELETE FROM outlast_documents WHERE kind = :kind AND key = :key AND version = :expected;
