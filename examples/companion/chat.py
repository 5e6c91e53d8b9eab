"""The chat in which users are told: a folder here, and as good as a service elsewhere."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What somebody was told. Whoever sends it gives it its token."""

    token: str
    user_id: str
    text: str


class Chat:
    """As chat services do, it takes a message with a token it knows for the same message."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def post(self, message: Message) -> bool:
        """Send it; False if that token was there already. Then nobody is told again."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._note_call(message)
        draft = self._folder / f"{message.token}.{os.getpid()}.draft"
        draft.write_text(json.dumps(asdict(message), ensure_ascii=False), encoding="utf-8")
        try:
            os.link(draft, self._folder / f"{message.token}.json")  # whole, and only once
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def messages(self) -> list[Message]:
        """All that users have seen."""
        files = sorted(self._folder.glob("*.json"))
        found = [Message(**json.loads(file.read_text(encoding="utf-8"))) for file in files]
        return sorted(found, key=lambda message: message.user_id)

    def calls(self) -> list[str]:
        """The token of every call of `post`, in their order, those that told nobody too."""
        log = self._folder / "calls.log"
        return log.read_text(encoding="ascii").split() if log.exists() else []

    def _note_call(self, message: Message) -> None:
        with (self._folder / "calls.log").open("a", encoding="ascii") as log:
            log.write(f"{message.token}\n")
