"""The contract's verbs on a server, a page each: a question to one of the lines."""
