-- @feed_answered
INSERT INTO feeds (name, checked_at, answered_at, error)
VALUES (:name, :now, :now, NULL)
ON CONFLICT (name) DO UPDATE SET checked_at = :now, answered_at = :now, error = NULL

-- @feed_failed
INSERT INTO feeds (name, checked_at, answered_at, error)
VALUES (:name, :now, NULL, :error)
ON CONFLICT (name) DO UPDATE SET checked_at = :now, error = :error

-- @feeds
SELECT name, checked_at, answered_at, error
FROM feeds
ORDER BY name

-- @add_article
-- No row is added for an article that was deleted before.
INSERT INTO raw_articles (url, feed, title, summary, published_at, fetched_at)
SELECT :url, :feed, :title, :summary, :published_at, :now
WHERE NOT EXISTS (SELECT 1 FROM seen_urls WHERE url = :url)

-- @articles_to_judge
-- Articles without a cluster, and all recent ones again.
SELECT a.id, a.url, a.title, a.published_at, min(l.cluster_id) AS cluster_id
FROM raw_articles AS a
LEFT JOIN cluster_articles AS l ON l.raw_article_id = a.id
WHERE (a.published_at, a.url) > (:after_published, :after_url)
GROUP BY a.id
HAVING cluster_id IS NULL OR a.published_at >= :since
ORDER BY a.published_at, a.url
LIMIT :most

-- @clusters_near
SELECT id, key, title, opened_at
FROM clusters
WHERE opened_at BETWEEN :since AND :until
ORDER BY opened_at, key

-- @open_cluster
INSERT INTO clusters (key, title, opened_at)
VALUES (:key, :title, :opened_at)

-- @cluster_of_key
SELECT id
FROM clusters
WHERE key = :key

-- @link
INSERT INTO cluster_articles (cluster_id, raw_article_id)
VALUES (:cluster, :article)
ON CONFLICT (cluster_id, raw_article_id) DO NOTHING

-- @count_link
UPDATE clusters
SET article_count = article_count + 1
WHERE id = :cluster

-- @purge_cluster_articles
-- Links of articles to be deleted; an article in a published brief keeps its links.
DELETE FROM cluster_articles
WHERE raw_article_id IN (
  SELECT id
  FROM raw_articles
  WHERE fetched_at < :before
    AND NOT EXISTS (SELECT 1 FROM brief_items AS i WHERE i.raw_article_id = raw_articles.id)
)

-- @recount
UPDATE clusters
SET article_count = (SELECT count(*) FROM cluster_articles AS l WHERE l.cluster_id = clusters.id)
WHERE article_count
  <> (SELECT count(*) FROM cluster_articles AS l WHERE l.cluster_id = clusters.id)

-- @purge_raw_articles
-- An article that still has a link stays.
DELETE FROM raw_articles
WHERE fetched_at < :before
  AND NOT EXISTS (SELECT 1 FROM brief_items AS i WHERE i.raw_article_id = raw_articles.id)
  AND NOT EXISTS (SELECT 1 FROM cluster_articles AS l WHERE l.raw_article_id = raw_articles.id)

-- @purge_clusters
DELETE FROM clusters
WHERE opened_at < :before
  AND NOT EXISTS (SELECT 1 FROM cluster_articles AS l WHERE l.cluster_id = clusters.id)
  AND NOT EXISTS (SELECT 1 FROM brief_items AS i WHERE i.cluster_id = clusters.id)

-- @purge_feeds
DELETE FROM feeds
WHERE checked_at < :before

-- @top_clusters
-- Order: number of feeds, then number of articles, then newest.
SELECT c.id, c.title, c.article_count, count(DISTINCT a.feed) AS feeds, max(a.published_at) AS newest
FROM clusters AS c
JOIN cluster_articles AS l ON l.cluster_id = c.id
JOIN raw_articles AS a ON a.id = l.raw_article_id
WHERE a.published_at > :since AND a.published_at <= :until
GROUP BY c.id
ORDER BY feeds DESC, c.article_count DESC, newest DESC, c.key
LIMIT :most

-- @articles_of_cluster
SELECT a.id, a.url, a.feed, a.title, a.summary, a.published_at
FROM cluster_articles AS l
JOIN raw_articles AS a ON a.id = l.raw_article_id
WHERE l.cluster_id = :cluster AND a.published_at <= :until
ORDER BY a.published_at, a.url
LIMIT :most

-- @publish
INSERT INTO briefs (day, published_at)
VALUES (:day, :now)
ON CONFLICT (day) DO NOTHING

-- @publish_item
INSERT INTO brief_items (day, place, cluster_id, raw_article_id)
VALUES (:day, :place, :cluster, :article)

-- @days
SELECT day
FROM briefs
ORDER BY day DESC
LIMIT :most

-- @brief
SELECT day, published_at
FROM briefs
WHERE day = :day

-- @items
SELECT i.place, i.cluster_id, c.title AS cluster_title, a.id, a.url, a.feed, a.title, a.summary, a.published_at
FROM brief_items AS i
JOIN clusters AS c ON c.id = i.cluster_id
JOIN raw_articles AS a ON a.id = i.raw_article_id
WHERE i.day = :day
ORDER BY i.place, a.published_at, a.url

-- @totals
SELECT
  (SELECT count(*) FROM raw_articles) AS articles,
  (SELECT count(*) FROM clusters) AS clusters,
  (SELECT count(*) FROM cluster_articles) AS links,
  (SELECT count(*) FROM briefs) AS briefs

-- @runs
SELECT id, job_name, scheduled_for, started_at, finished_at, status, worker_instance,
  error_message
FROM job_runs
ORDER BY started_at DESC, id
LIMIT :most

-- @close_stale
-- S0 6.2: slots claimed in SQL whose run is older than the threshold.
UPDATE claimed_slots
SET status = 'skipped_timeout', finished_at = :now, error_message = 'timeout'
WHERE status = 'running' AND job_name = :name AND started_at < :before
RETURNING id, worker_instance

-- @open_claims
SELECT id, job_name, worker_instance
FROM claimed_slots
WHERE status = 'running'

-- @recover_claim
UPDATE claimed_slots
SET status = 'failed', finished_at = :now, error_message = 'worker_startup_recovery'
WHERE id = :id AND status = 'running'

-- @recovered
-- What start-up recovery and thresholds closed, by reason; from the stored runs, so that it
-- survives every restart.
SELECT error_message AS reason, count(*) AS count
FROM job_runs
WHERE error_message IN ('worker_startup_recovery', 'timeout', 'lease_expired', 'silent')
GROUP BY error_message
