"""The verbs: what each does inside one transaction."""
