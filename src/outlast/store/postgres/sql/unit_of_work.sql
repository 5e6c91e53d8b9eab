-- @now
SELECT outlast.micros();
