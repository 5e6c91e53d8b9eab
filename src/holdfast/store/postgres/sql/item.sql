-- @save
-- An item of its own: what the database refuses takes nothing else with it.
SAVEPOINT holdfast_item;

-- @undo
ROLLBACK TO SAVEPOINT holdfast_item;

-- @keep
RELEASE SAVEPOINT holdfast_item;
