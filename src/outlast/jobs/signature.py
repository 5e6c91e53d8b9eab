"""Signature of a handler: its params, its result and its executor."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from outlast.core.outcome import HandlerOutcome
from outlast.errors import InvalidType
from outlast.jobs.codec import Codec, ParamsCodec, ResultCodec
from outlast.jobs.executor_choice import ExecutorName, choose_executor
from outlast.run_context import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The inspected signature of a handler; `positional` are params accepted without a name."""

    executor: ExecutorName
    takes_run: bool
    positional: tuple[str, ...]
    params: Codec
    result: ResultCodec


def read_signature(
    function: Callable[..., Any], type_name: str, *, executor: str | None = None
) -> Signature:
    """Inspect a handler; InvalidType names what a handler must not have."""
    check_callable(function, type_name)
    chosen = choose_executor(function, executor, type_name)
    hints = read_hints(function, type_name)
    result = read_result(hints, type_name, chosen)
    parameters = list(inspect.signature(function).parameters.values())
    takes_run = bool(parameters) and hints.get(parameters[0].name) is Run
    arguments = parameters[1:] if takes_run else parameters
    for each in arguments:
        _check_argument(each, hints, type_name)
    return Signature(
        executor=chosen,
        takes_run=takes_run,
        positional=tuple(each.name for each in arguments if each.kind is not each.KEYWORD_ONLY),
        params=ParamsCodec(
            type_name,
            {each.name: hints.get(each.name, Any) for each in arguments},
            optional={each.name for each in arguments if each.default is not each.empty},
        ),
        result=result,
    )


def read_result(hints: Mapping[str, Any], type_name: str, executor: ExecutorName) -> ResultCodec:
    """Return the codec of a handler's result; outcomes are not results."""
    result = _without_outcomes(hints.get("return", Any))
    if executor == "command" and result not in {Any, NoneType}:
        raise InvalidType(f'job type "{type_name}" is a command; it returns a Command, no result')
    return ResultCodec(type_name, result)


def check_callable(function: Callable[..., Any], type_name: str) -> None:
    """Raise InvalidType unless `function` is callable and returns one value."""
    if not inspect.isroutine(function):
        raise InvalidType(f'job type "{type_name}" is {function!r:.80}; decorate a function')
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidType(f'job type "{type_name}" yields; a handler returns one value')


def read_hints(function: Callable[..., Any], type_name: str) -> Mapping[str, Any]:
    """Return the annotations of a handler; InvalidType if one cannot be resolved."""
    # `Run` is often imported for type checkers only; it is supplied here.
    names = {"Run": Run, **getattr(inspect.unwrap(function), "__globals__", {})}
    try:
        return get_type_hints(function, globalns=names, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise InvalidType(
            f'job type "{type_name}" has an annotation that cannot be read here: {error}; '
            "define the name before the handler, at the top level of its module"
        ) from error


def _check_argument(each: inspect.Parameter, hints: Mapping[str, Any], type_name: str) -> None:
    where = f'parameter "{each.name}" of job type "{type_name}"'
    if hints.get(each.name) is Run:
        raise InvalidType(f"{where} is the Run; it comes first, before the job's own params")
    if each.kind is each.POSITIONAL_ONLY:
        raise InvalidType(f"{where} is positional-only; params are stored by name, so drop `/`")
    if each.kind is each.VAR_POSITIONAL:
        raise InvalidType(f"{where} takes any number of params; take one list instead")
    if each.kind is each.VAR_KEYWORD:
        raise InvalidType(f"{where} takes any name; name each param, or take one dict")


def _without_outcomes(hint: Any) -> Any:
    """Return the annotation without Snooze, Skip, Cancel, RetryAfter and Command."""
    if get_origin(hint) not in {Union, UnionType}:
        return NoneType if _is_outcome(hint) else hint
    kept = [each for each in get_args(hint) if not _is_outcome(each)]
    return reduce(or_, kept) if kept else NoneType


def _is_outcome(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, HandlerOutcome)
