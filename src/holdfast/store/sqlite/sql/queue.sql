-- @set
INSERT INTO holdfast_queues (name, ordering, gap)
VALUES (:name, :ordering, :gap)
ON CONFLICT (name) DO UPDATE SET ordering = excluded.ordering, gap = excluded.gap;

-- @get
SELECT ordering, gap FROM holdfast_queues WHERE name = :name;
