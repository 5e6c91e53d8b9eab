"""Running jobs: take them, run them, close their runs, and look after what others left."""
