"""An app that does not import."""

app = not_a_name  # noqa: F821 - that is the point
