"""An app without types."""

from holdfast import Holdfast

app = Holdfast("sqlite:///never-made.db")
