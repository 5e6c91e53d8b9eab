"""Where jobs are kept: one contract (`base`), and a folder for each database that keeps it."""
