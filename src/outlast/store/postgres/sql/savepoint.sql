-- @save
-- An item of its own: what the database refuses takes nothing else with it.
SAVEPOINT outlast_item;

-- @undo
ROLLBACK TO SAVEPOINT outlast_item;

-- @keep
RELEASE SAVEPOINT outlast_item;
