"""An app without types."""

from outlast import Outlast

app = Outlast("sqlite:///never-made.db")
