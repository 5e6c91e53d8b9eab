"""The supervised worker: a supervisor process without user code, and its child processes."""
