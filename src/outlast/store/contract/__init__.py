"""The store contract: one page per noun."""
