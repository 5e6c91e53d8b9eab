"""The chat that delivers messages: a folder that behaves like a chat service."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to a user; the sender chooses its token."""

    token: str
    user_id: str
    text: str


class Chat:
    """A chat with idempotent delivery: messages with the same token are one message."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def post(self, message: Message) -> bool:
        """Send a message; return False, and send nothing, if its token is known."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._note_call(message)
        draft = self._folder / f"{message.token}.{os.getpid()}.draft"
        draft.write_text(json.dumps(asdict(message), ensure_ascii=False), encoding="utf-8")
        try:
            os.link(draft, self._folder / f"{message.token}.json")  # atomic; fails if it exists
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def messages(self) -> list[Message]:
        """Return all messages, sorted by user."""
        files = sorted(self._folder.glob("*.json"))
        found = [Message(**json.loads(file.read_text(encoding="utf-8"))) for file in files]
        return sorted(found, key=lambda message: message.user_id)

    def calls(self) -> list[str]:
        """Return the token of every call of `post` in order, including repeated ones."""
        log = self._folder / "calls.log"
        return log.read_text(encoding="ascii").split() if log.exists() else []

    def _note_call(self, message: Message) -> None:
        with (self._folder / "calls.log").open("a", encoding="ascii") as log:
            log.write(f"{message.token}\n")
