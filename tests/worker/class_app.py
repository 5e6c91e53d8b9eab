"""Handler classes in a module that another process can import; a process never opens the store."""

import os
import sys

from pydantic import BaseModel

from outlast import Command, Outlast, Run


class Number(BaseModel):
    value: int


class Numbered:
    @classmethod
    def payload_model(cls) -> type[Number]:
        return Number


class DoubleHandler(Numbered):
    def handle(self, run: Run, payload: Number) -> tuple[int, int, int]:
        return payload.value * 2, run.attempt, os.getpid()


class DoubleLaterHandler(Numbered):
    async def handle(self, payload: Number) -> int:
        return payload.value * 2


class ExitHandler(Numbered):
    def handle(self, payload: Number) -> Command:
        return Command([sys.executable, "-c", f"raise SystemExit({payload.value})"], ok=(3,))


def register(app: Outlast) -> None:
    app.job(executor="process")(DoubleHandler)
    app.job(executor="process")(DoubleLaterHandler)
    app.job(executor="command")(ExitHandler)


app = Outlast("sqlite:///never-opened.db")
register(app)
