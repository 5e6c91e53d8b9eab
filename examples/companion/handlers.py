"""The two job types: each an idempotent handler with a model of its payload."""

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final
from uuid import UUID, uuid5

from pydantic import BaseModel, ConfigDict, Field

from outlast import Run

from .chat import Chat, Message
from .memory import Memory

PEOPLE: Final = Path(__file__).with_name("people.json")

UserId = Annotated[str, Field(pattern="^[a-z][a-z0-9-]*$", max_length=40)]


@dataclass(frozen=True, slots=True)
class World:
    """The resources of the handlers: the memory and the chat."""

    memory: Memory
    chat: Chat


class Payload(BaseModel):
    """The payload of every job: the user it concerns."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user_id: UserId


class DailySummaryPayload(Payload):
    """The payload of a summary; the day is also part of its unique key."""

    day: date


class UserSyncPayload(Payload):
    """The payload of a sync; the directory has the other data."""


class BaseJobHandler:
    """Base class of the handlers (S2 5); each run creates an instance without arguments.

    A handler must be idempotent: if a worker dies after the effect and before the job is
    completed, another worker runs the job again.
    """

    world: ClassVar[World]

    @classmethod
    def payload_model(cls) -> type[BaseModel]:
        raise NotImplementedError

    def handle(self, run: Run, payload: Any) -> None:
        raise NotImplementedError


class UserSyncHandler(BaseJobHandler):
    """Copy the data of a user from the directory; each token takes effect once."""

    @classmethod
    def payload_model(cls) -> type[UserSyncPayload]:
        return UserSyncPayload

    def handle(self, run: Run, payload: UserSyncPayload) -> None:
        person = json.loads(PEOPLE.read_text(encoding="utf-8")).get(payload.user_id)
        if person is None:
            raise LookupError(f"user {payload.user_id} is not in the directory")
        self.world.memory.sync(payload.user_id, **person, token=token_of(run, "sync"))


class DailySummaryHandler(BaseJobHandler):
    """Send a user the summary of a day, at most once.

    `summary_sent_at` prevents a second message once it is recorded. Between sending and recording,
    the token does.
    """

    @classmethod
    def payload_model(cls) -> type[DailySummaryPayload]:
        return DailySummaryPayload

    def handle(self, run: Run, payload: DailySummaryPayload) -> None:
        memory, chat = self.world.memory, self.world.chat
        if memory.summary_sent_at(payload.user_id, payload.day) is not None:
            return
        user = memory.user(payload.user_id)
        if user is None:
            raise LookupError(f"{payload.user_id} has not been synced yet")
        done = "; ".join(user.notes) or "a quiet day"
        text = f"{user.name}, your {payload.day:%A}: {done}."
        token = token_of(run, "summary")
        chat.post(Message(token=token, user_id=user.user_id, text=text))
        memory.note_sent(user.user_id, payload.day, token=token)


HANDLERS: Final[dict[str, type[BaseJobHandler]]] = {
    "daily_summary": DailySummaryHandler,
    "user_sync": UserSyncHandler,
}


def token_of(run: Run, purpose: str) -> str:
    """Return a token that is the same for every run of a job, so receivers detect repeats."""
    return str(uuid5(UUID(run.job_id), purpose))
