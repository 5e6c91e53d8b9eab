"""The two kinds of job: each a handler with a model of its payload, and safe to run again."""

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
    """What handlers work on."""

    memory: Memory
    chat: Chat


class Payload(BaseModel):
    """What every job of the companion says: whom it is about."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user_id: UserId


class DailySummaryPayload(Payload):
    """The day is the user's, and part of what makes the job the only one of its kind."""

    day: date


class UserSyncPayload(Payload):
    """Nothing more: the directory knows the rest."""


class BaseJobHandler:
    """S2 5. Each run makes one, without arguments: what it works on, its class was given.

    It must be idempotent: a worker may die after the effect and before the job is completed, and
    then another one runs it again. Nothing does that for it.
    """

    world: ClassVar[World]

    @classmethod
    def payload_model(cls) -> type[BaseModel]:
        raise NotImplementedError

    def handle(self, run: Run, payload: Any) -> None:
        raise NotImplementedError


class UserSyncHandler(BaseJobHandler):
    """Take over what the directory says of a user; once per token, however often it runs."""

    @classmethod
    def payload_model(cls) -> type[UserSyncPayload]:
        return UserSyncPayload

    def handle(self, run: Run, payload: UserSyncPayload) -> None:
        person = json.loads(PEOPLE.read_text(encoding="utf-8")).get(payload.user_id)
        if person is None:
            raise LookupError(f"the directory has nobody called {payload.user_id}")
        self.world.memory.sync(payload.user_id, **person, token=token_of(run, "sync"))


class DailySummaryHandler(BaseJobHandler):
    """Tell a user what they did that day, unless they were told.

    `summary_sent_at` guards what comes after it was noted, the token what comes between sending
    and noting.
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
    """The same for every run of a job: whoever gets it twice knows that."""
    return str(uuid5(UUID(run.job_id), purpose))
