"""The tour: a minute of real jobs, real workers and a real kill, each line a checked fact."""
