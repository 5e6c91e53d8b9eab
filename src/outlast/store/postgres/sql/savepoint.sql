-- @save
-- One savepoint per item: a refused item is rolled back alone.
SAVEPOINT outlast_item;

-- @undo
ROLLBACK TO SAVEPOINT outlast_item;

-- @keep
RELEASE SAVEPOINT outlast_item;
