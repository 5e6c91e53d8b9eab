-- @now
SELECT holdfast.micros();
