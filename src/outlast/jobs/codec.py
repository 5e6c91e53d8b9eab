"""Codec of params and results: JSON text, validated by Pydantic in both directions."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from types import NoneType
from typing import Any, Final, NotRequired, Protocol

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import CoreConfig, SchemaSerializer
from typing_extensions import TypedDict

from outlast.errors import InvalidParams, InvalidType, PermanentError, UnfitParams
from outlast.jobs.payload_limits import check_params, check_value, to_text

_CONFIG: Final = ConfigDict(
    extra="forbid", allow_inf_nan=False, ser_json_bytes="base64", val_json_bytes="base64"
)
# Once validated, values of these types are exactly what they say, so writing them needs no check.
_PLAIN: Final = (int, str, float, bool, NoneType, Any)
_SHOWN: Final = 5
_WORDS: Final = {"string_unicode": "holds a lone surrogate, which cannot be stored; remove it"}


class Codec(Protocol):
    """Encodes and decodes the params of a job type."""

    def dump(self, params: dict[str, Any]) -> str:
        """Return the payload of params; InvalidParams or PayloadTooLarge if they are refused."""
        ...

    def load(self, text: str) -> dict[str, Any]:
        """Return the params for the handler; UnfitParams if this process cannot decode them."""
        ...

    def partial(self) -> "ParamsCodec":
        """Return a codec that accepts any part of the params."""
        ...


class ParamsCodec:
    """Codec of a handler function's params.

    A param that is left out is not stored: the handler's default applies when it runs.
    """

    __slots__ = ("_from_json", "_hints", "_partial", "_to_json", "_type_name", "_validate", "_what")

    def __init__(
        self, type_name: str, hints: Mapping[str, Any], *, optional: Collection[str] = ()
    ) -> None:
        self._type_name = type_name
        self._hints = hints
        self._partial: ParamsCodec | None = None
        self._what = f'params of "{type_name}"'
        made = adapter(_shape(hints, optional), self._what, config=None)
        self._validate = made.validator.validate_python
        self._from_json = reader(made)
        self._to_json = writer(made, hints.values())

    def partial(self) -> "ParamsCodec":
        """Return a codec that accepts any part of the params; each one given is validated."""
        if self._partial is None:  # takes a millisecond to build, and most types need none
            self._partial = ParamsCodec(self._type_name, self._hints, optional=self._hints)
        return self._partial

    def dump(self, params: dict[str, Any]) -> str:
        """Return the payload of params; InvalidParams or PayloadTooLarge if they are refused."""
        check_params(params, what=self._what)
        try:
            valid = self._validate(params)
        except ValidationError as error:
            raise InvalidParams(describe_validation_error(self._what, error)) from None
        return to_text(self._to_json, valid, what=self._what)

    def load(self, text: str) -> dict[str, Any]:
        """Return the params for the handler; UnfitParams if this process cannot decode them."""
        try:
            params: dict[str, Any] = self._from_json(text)
        except ValidationError as error:
            raise unfit(self._what, error) from None
        return params


class ResultCodec:
    """Codec of a job type's result; the result None is stored as NULL."""

    __slots__ = ("_from_json", "_nothing", "_to_json", "_validate", "_what")

    def __init__(self, type_name: str, hint: Any) -> None:
        self._what = f'result of "{type_name}"'
        self._nothing = hint is NoneType
        made = adapter(hint, self._what, config=_CONFIG)
        self._validate = made.validator.validate_python
        self._from_json = reader(made)
        self._to_json = writer(made, [hint])

    def dump(self, value: Any) -> str | None:
        """Return a result as JSON; PermanentError if it cannot be stored, since no retry helps."""
        if self._nothing:
            return None
        try:
            check_value(value, what=self._what)
            valid = self._validate(value)
            return None if valid is None else to_text(self._to_json, valid, what=self._what)
        except ValidationError as error:
            raise PermanentError(describe_validation_error(self._what, error)) from None
        except InvalidParams as error:
            raise PermanentError(str(error)) from error

    def load(self, text: str | None) -> Any:
        """Return a stored result in the type of the handler's return annotation."""
        if text is None:
            return None
        try:
            return self._from_json(text)
        except ValidationError as error:
            raise InvalidParams(describe_validation_error(self._what, error)) from None


def _shape(hints: Mapping[str, Any], optional: Collection[str]) -> Any:
    # A TypedDict, since a model would reserve names such as `json` and `copy` for itself.
    fields = {name: NotRequired[hint] if name in optional else hint for name, hint in hints.items()}
    typed_dict: Any = TypedDict
    shape = typed_dict("Params", fields)
    shape.__pydantic_config__ = _CONFIG
    return shape


def adapter(shape: Any, what: str, *, config: ConfigDict | None) -> TypeAdapter[Any]:
    """Return Pydantic's adapter of a type; InvalidType if Pydantic does not know the type."""
    try:
        return TypeAdapter(shape, config=config)
    except PydanticUserError as error:
        if config is not None:  # models, dataclasses and typed dicts have their own
            return adapter(shape, what, config=None)
        reason = str(error).partition("\n")[0].partition(". Set ")[0][:300]
        raise InvalidType(f"{what} cannot be stored: {reason}; use types Pydantic knows") from error


def reader(adapter: TypeAdapter[Any]) -> Callable[[str], Any]:
    """Return a function that validates JSON text; it raises ValidationError."""
    validate = adapter.validator.validate_json

    def read(text: str) -> Any:  # functools.partial would double the cost of a read
        # Names as well as aliases: what was written by name must be read by name.
        return validate(text, by_alias=True, by_name=True)

    return read


def writer(adapter: TypeAdapter[Any], hints: Iterable[Any]) -> Callable[[Any], bytes]:
    """Return a function that writes validated values as JSON."""
    strict = not all(hint in _PLAIN for hint in hints)
    # Given again, for a TypedDict keeps its own configuration from its fields' serialisers.
    to_json = SchemaSerializer(adapter.core_schema, CoreConfig(ser_json_bytes="base64")).to_json
    # Strict refuses a model changed behind Pydantic's back; the check costs more than the writing.
    return partial(to_json, round_trip=True, warnings="error") if strict else to_json


def describe_validation_error(what: str, error: ValidationError) -> str:
    """Return which fields are wrong and why, without their values: they may be secret."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [_line(each["loc"], _WORDS.get(each["type"], each["msg"])) for each in found[:_SHOWN]]
    more = f"; and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return f"{what} refused: {'; '.join(lines)}{more}"


def unfit(what: str, error: ValidationError) -> UnfitParams:
    """Return the error of stored params that do not fit; `problems` quotes nothing of them.

    The messages of validators may quote values, and so may the inner steps of a path.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)
    problems = {
        f'param "{str(each["loc"][0])[:128]}": {each["type"]}' if each["loc"] else each["type"]
        for each in found
    }
    return UnfitParams(describe_validation_error(what, error), problems=sorted(problems)[:_SHOWN])


def _line(path: tuple[int | str, ...], message: str) -> str:
    where = ".".join(str(step) for step in path)[:128]
    return f'field "{where}": {message[:300]}' if where else message[:300]
