"""The ways to run a handler: in the event loop, in a thread, in a process, or as a command."""
