"""Random histories, compared with the model store."""
