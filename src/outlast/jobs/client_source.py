"""Where a job type finds the client of its app."""

from outlast.errors import ConfigurationError
from outlast.jobs.client import Client


class ClientSource:
    """The client of an app; of a job module, once an app has included it."""

    __slots__ = ("client", "name")

    def __init__(self, name: str, client: Client | None = None) -> None:
        self.name = name
        self.client = client

    def get(self) -> Client:
        """Return the client; ConfigurationError if no app has included the module."""
        if self.client is None:
            raise ConfigurationError(
                f"job module {self.name} is not part of an app, so its jobs have no store; call "
                "app.include(…) with it where the app is created"
            )
        return self.client
