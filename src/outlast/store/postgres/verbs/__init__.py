"""The writing verbs of the contract: what each one does inside a transaction."""
