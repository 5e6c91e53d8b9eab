"""The model store: the oracle of the conformance suite, made of dictionaries."""
