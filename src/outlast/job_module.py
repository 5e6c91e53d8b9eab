"""Job modules: job types, schedules, queues and middleware of a part of an app, without the app."""

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, overload

from outlast.app_declarations import CodeDeclarations, DeclarationSet
from outlast.app_name import calling_frame, place_of
from outlast.core.declaration import declared_twice
from outlast.core.limits import check_name, repr_short
from outlast.errors import InvalidArgument, InvalidSchedule
from outlast.jobs.client_source import ClientSource
from outlast.jobs.middleware import Middleware
from outlast.jobs.registry import Registry


class JobModule(CodeDeclarations):
    """CodeDeclarations of one part of an app: `jobs = JobModule("billing")`, then `@jobs.job`.

    The part does not import the app: the app includes it, `app.include(jobs)`. From then on its
    job types are used as those of the app. Its middleware runs around its own handlers, inside
    that of the app. The names of its job types are not changed by the name of the module.
    """

    def __init__(self, name: str) -> None:
        frame = calling_frame()
        self.name = check_name(name, what="the name of a job module")
        self.python_module = "" if frame is None else str(frame.f_globals.get("__name__"))
        self.place = place_of(frame)
        self.included_at: str | None = None
        self._own: list[Middleware] = []
        self._layers = MiddlewareLayers(self._own)
        self._code = DeclarationSet(
            source=ClientSource(f"{name} ({self.place})"),
            types=Registry(),
            middleware=self._own,
            layers=self._layers,
        )

    def join(self, app: DeclarationSet, place: str) -> None:
        """Make these declarations those of an app; all of them or, on a clash, none."""
        if self.included_at is not None:
            raise InvalidArgument(
                f"job module {self.name} is included twice, at {self.included_at} and at {place}; "
                "include it once"
            )
        own = self._code
        _require_no_clash(app, own)
        self.included_at = place
        own.source.client, self._layers.outer = app.source.client, app.middleware
        app.schedules |= own.schedules
        app.queues |= own.queues
        # What the module declares from now on is the app's at once.
        self._code = replace(own, types=app.types, schedules=app.schedules, queues=app.queues)
        for each in own.types.all():
            each.follow_source()
            app.types.add(each)

    def __repr__(self) -> str:
        return f"<job module {self.name!r} of {self.place}>"


class MiddlewareLayers(Sequence[Middleware]):
    """The middleware of an app and, inside it, that of one of its job modules."""

    __slots__ = ("_inner", "outer")

    def __init__(self, inner: Sequence[Middleware]) -> None:
        self.outer: Sequence[Middleware] = ()
        self._inner = inner

    @overload
    def __getitem__(self, at: int) -> Middleware: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Middleware]: ...
    def __getitem__(self, at: int | slice) -> Any:
        """Return one of them, or a part."""
        return [*self.outer, *self._inner][at]

    def __len__(self) -> int:
        return len(self.outer) + len(self._inner)


def _require_no_clash(app: DeclarationSet, own: DeclarationSet) -> None:
    app.types.require_free(own.types.all())
    for name in own.schedules.keys() & app.schedules.keys():
        places = app.schedules[name].place, own.schedules[name].place
        raise InvalidSchedule(declared_twice("schedule", name, *places))
    for name in own.queues.keys() & app.queues.keys():
        places = app.queues[name].place, own.queues[name].place
        raise InvalidArgument(declared_twice("queue", name, *places))


def modules_of(given: object) -> list[JobModule]:
    """Return the job module given, or those that a Python module creates."""
    if isinstance(given, JobModule):
        return [given]
    if not isinstance(given, ModuleType):
        raise InvalidArgument(
            f"{repr_short(given)} cannot be included; give a JobModule, or a Python module that "
            "creates one"
        )
    values = {id(each): each for each in vars(given).values() if isinstance(each, JobModule)}
    found = [each for each in values.values() if each.python_module == given.__name__]
    if not found:
        raise InvalidArgument(
            f"module {given.__name__} creates no JobModule at its top level; write "
            f'jobs = JobModule("{given.__name__.rpartition(".")[2]}") there, and decorate with '
            "@jobs.job"
        )
    return found
