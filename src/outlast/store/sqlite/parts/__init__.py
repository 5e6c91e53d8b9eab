"""The contract's verbs on a file, a page each: a question to the writer or to a reader."""
