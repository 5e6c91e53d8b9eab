-- @save
-- One item of a batch: its refusal undoes no other item.
SAVEPOINT outlast_item;

-- @undo
ROLLBACK TO outlast_item;

-- @keep
RELEASE outlast_item;
