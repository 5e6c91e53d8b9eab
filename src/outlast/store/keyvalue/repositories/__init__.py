"""Records of the key-value store: codecs, load and save."""
