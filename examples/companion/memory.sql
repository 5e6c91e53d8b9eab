-- @users
CREATE TABLE IF NOT EXISTS users (
    user_id   TEXT PRIMARY KEY,
    name      TEXT NOT NULL,
    notes     TEXT NOT NULL,
    synced_at TEXT NOT NULL,
    token     TEXT NOT NULL,
    syncs     INTEGER NOT NULL
)

-- @daily_summaries
CREATE TABLE IF NOT EXISTS daily_summaries (
    user_id         TEXT NOT NULL,
    day             TEXT NOT NULL,
    token           TEXT NOT NULL,
    summary_sent_at TEXT NOT NULL,
    PRIMARY KEY (user_id, day)
)

-- @sync
-- A sync with a known token changes nothing, so the statement is idempotent.
INSERT INTO users (user_id, name, notes, synced_at, token, syncs)
VALUES (:user_id, :name, :notes, :now, :token, 1)
ON CONFLICT (user_id) DO UPDATE
SET name = excluded.name,
    notes = excluded.notes,
    synced_at = excluded.synced_at,
    token = excluded.token,
    syncs = syncs + 1
WHERE token <> excluded.token

-- @user
SELECT user_id, name, notes, synced_at, token, syncs
FROM users
WHERE user_id = :user_id

-- @sent
SELECT user_id, day, token, summary_sent_at
FROM daily_summaries
WHERE user_id = :user_id
  AND day = :day

-- @note_sent
INSERT INTO daily_summaries (user_id, day, token, summary_sent_at)
VALUES (:user_id, :day, :token, :now)
ON CONFLICT (user_id, day) DO NOTHING
