"""Core: values and pure rules, without input or output."""
