"""A small studio that writes stories: S1, the durable ordered queue, on Outlast."""
