-- @get
SELECT kind, key, value::text, version, created_at, updated_at
FROM outlast.documents
WHERE kind = :kind::text AND key = :key::text;

-- @all
SELECT kind, key, value::text, version, created_at, updated_at
FROM outlast.documents
WHERE kind = :kind::text
ORDER BY key;

-- @create
INSERT INTO outlast.documents AS r (kind, key, value, created_at, updated_at)
VALUES (:kind::text, :key::text, :value::json, :now::bigint, :now::bigint)
ON CONFLICT (kind, key) DO NOTHING
RETURNING r.kind, r.key, r.value::text, r.version, r.created_at, r.updated_at;

-- @write
UPDATE outlast.documents AS r
SET
  value = :value::json,
  version = nextval('outlast.document_versions'),
  updated_at = greatest(:now::bigint, r.updated_at + 1)
WHERE r.kind = :kind::text AND r.key = :key::text AND r.version = :expected::bigint
RETURNING r.kind, r.key, r.value::text, r.version, r.created_at, r.updated_at;

-- @delete
DELETE FROM outlast.documents AS r
WHERE r.kind = :kind::text AND r.key = :key::text AND r.version = :expected::bigint
RETURNING r.kind, r.key, r.value::text, r.version, r.created_at, r.updated_at;
