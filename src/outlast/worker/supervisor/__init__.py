"""The worker as processes: a supervisor that runs no user code, and children that do."""
