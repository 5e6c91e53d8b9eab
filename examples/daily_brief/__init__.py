"""A daily news brief: S0, slot jobs with one worker, on Outlast."""
