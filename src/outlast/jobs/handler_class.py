"""Class-based handlers: `payload_model()` names their params, `handle(payload)` runs a job."""

import inspect
import re
from collections.abc import Callable
from typing import Any, Final

from pydantic import BaseModel, RootModel

from outlast.errors import InvalidType
from outlast.jobs.executor_choice import choose_executor
from outlast.jobs.model_codec import PAYLOAD, ModelCodec
from outlast.jobs.signature import Signature, check_callable, read_hints, read_result
from outlast.run_context import Run

_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_GIVEN_ANYWAY: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def default_name(handler: Callable[..., Any]) -> str:
    """Return the default name of a job type: `daily_summary` for DailySummaryHandler."""
    name = str(getattr(handler, "__name__", ""))
    if not isinstance(handler, type):
        return name
    return _WORDS.sub("_", name.removesuffix("Handler") or name).lower()


def read_class(
    handler: type, type_name: str, *, executor: str | None = None
) -> tuple[Callable[..., Any], Signature]:
    """Return the function of a run, which creates a new instance, and its signature."""
    model = _model(handler)
    handle = _handle(handler)
    _check_made_without_arguments(handler)
    check_callable(handle, type_name)
    chosen = choose_executor(handle, executor, type_name)
    hints = read_hints(handle, type_name)
    _, *parameters = inspect.signature(handle).parameters.values()
    takes_run = bool(parameters) and hints.get(parameters[0].name) is Run
    _check_payload(handler, model, parameters[1:] if takes_run else parameters, hints)
    return _caller(handler, is_async=inspect.iscoroutinefunction(handle)), Signature(
        executor=chosen,
        takes_run=takes_run,
        positional=(PAYLOAD,),
        params=ModelCodec(type_name, model),
        result=read_result(hints, type_name, chosen),
    )


def _model(handler: type) -> type[BaseModel]:
    found = inspect.getattr_static(handler, "payload_model", None)
    if found is None:
        raise _invalid(handler, "has no payload_model(); add that classmethod, giving its model")
    if not isinstance(found, classmethod):
        raise _invalid(handler, "has a payload_model that is no classmethod; decorate it as one")
    try:
        model: Any = handler.payload_model()  # type: ignore[attr-defined]  # it is there, as just seen
    except Exception as error:
        raise _invalid(handler, f"could not give its payload_model(): {error!r:.200}") from error
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise _invalid(handler, f"gives {model!r:.80} as its payload_model(); give a BaseModel")
    if issubclass(model, RootModel):
        raise _invalid(handler, f"gives the RootModel {model.__name__}; give one that has fields")
    return model


def _handle(handler: type) -> Callable[..., Any]:
    found = inspect.getattr_static(handler, "handle", None)
    if found is None:
        raise _invalid(handler, "has no handle(self, payload); add that method")
    if not inspect.isfunction(found):
        raise _invalid(handler, "has a handle that is no method; define handle(self, payload)")
    return found


def _check_made_without_arguments(handler: type) -> None:
    if inspect.isabstract(handler):
        raise _invalid(handler, "is abstract; register a class that can be made")
    given = inspect.signature(handler).parameters.values()
    needs = [p.name for p in given if p.default is p.empty and p.kind not in _GIVEN_ANYWAY]
    if needs:
        raise _invalid(
            handler,
            f'needs "{needs[0]}" to be made; each run makes one without arguments, so give it a '
            "default or drop it",
        )


def _check_payload(
    handler: type, model: type[BaseModel], parameters: list[inspect.Parameter], hints: Any
) -> None:
    needed = [p for p in parameters if p.default is p.empty and p.kind not in _GIVEN_ANYWAY]
    if not parameters or len(needed) > 1 or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise _invalid(handler, "has a handle that does not take one payload; take it, and no more")
    hint = hints.get(parameters[0].name)
    if isinstance(hint, type) and not issubclass(model, hint):
        raise _invalid(
            handler,
            f"handles a {hint.__name__}, but its payload_model() is {model.__name__}; make the "
            "two agree",
        )


def _caller(handler: type, *, is_async: bool) -> Callable[..., Any]:
    async def call(*run: Run, payload: BaseModel) -> Any:
        return await handler().handle(*run, payload)

    def call_plainly(*run: Run, payload: BaseModel) -> Any:
        return handler().handle(*run, payload)

    chosen: Callable[..., Any] = call if is_async else call_plainly
    chosen.__module__ = handler.__module__  # where an executor process looks for the app
    chosen.__qualname__ = f"{handler.__qualname__}.handle"
    return chosen


def _invalid(handler: type, why: str) -> InvalidType:
    return InvalidType(f"handler class {handler.__qualname__} {why}")
