"""Params codec of a handler class: the fields of one Pydantic model as JSON."""

from typing import Annotated, Any, Final

from pydantic import AliasChoices, AliasPath, BaseModel, ValidationError
from pydantic.fields import FieldInfo

from outlast.errors import InvalidParams
from outlast.jobs.codec import (
    ParamsCodec,
    adapter,
    describe_validation_error,
    reader,
    unfit,
    writer,
)
from outlast.jobs.payload_limits import check_params, to_text

PAYLOAD: Final = "payload"
"""Name of the handler's parameter that takes the model."""


class ModelCodec:
    """Encodes a model, or its fields by name; decodes to a model."""

    __slots__ = (
        "_by_field",
        "_from_json",
        "_model",
        "_to_json",
        "_type_name",
        "_validate",
        "_what",
    )

    def __init__(self, type_name: str, model: type[BaseModel]) -> None:
        self._type_name = type_name
        self._model = model
        self._by_field: ParamsCodec | None = None
        self._what = f'payload of "{type_name}"'
        made = adapter(model, self._what, config=None)
        self._validate = made.validator.validate_python
        self._from_json = reader(made)
        self._to_json = writer(made, [model])

    def dump(self, params: dict[str, Any]) -> str:
        """Return the payload of a model or its fields; InvalidParams or PayloadTooLarge."""
        given = params.get(PAYLOAD)
        if params.keys() == {PAYLOAD} and isinstance(given, self._model):
            return self._text(given)
        if PAYLOAD in params and PAYLOAD not in self._names():
            also = " and more" if len(params) > 1 else ""
            raise InvalidParams(
                f"{self._what} is a {type(given).__name__}{also}; give a {self._model.__name__}, "
                "or its fields by name"
            )
        check_params(params, what=self._what)
        self._check_names(params)
        try:
            valid = self._validate(params, by_alias=True, by_name=True)
        except ValidationError as error:
            raise InvalidParams(describe_validation_error(self._what, error)) from None
        return self._text(valid)

    def load(self, text: str) -> dict[str, Any]:
        """Return the model for the handler; UnfitParams if this process cannot decode it."""
        try:
            return {PAYLOAD: self._from_json(text)}
        except ValidationError as error:
            raise unfit(self._what, error) from None

    def partial(self) -> ParamsCodec:
        """Return a codec of any part of the fields; each is validated by itself.

        Validators of several fields run when the whole payload is validated.
        """
        if self._by_field is None:
            fields = self._model.model_fields.items()
            hints = {name: _hint(each) for name, each in fields}
            names = {alias: name for name, each in fields for alias in _aliases(each)}
            self._by_field = _ByField(self._type_name, hints, optional=hints)
            self._by_field.names = names
        return self._by_field

    def _text(self, model: BaseModel) -> str:
        check_params(vars(model), what=self._what)
        text = to_text(self._to_json, model, what=self._what)
        try:
            self._from_json(text)  # a model may have been changed without validation
        except ValidationError as error:
            raise InvalidParams(describe_validation_error(self._what, error)) from None
        return text

    def _check_names(self, params: dict[str, Any]) -> None:
        """Refuse unknown names, even if the model ignores extra fields."""
        unknown = params.keys() - self._names()
        if unknown and self._model.model_config.get("extra") != "allow":
            known = ", ".join(self._model.model_fields) or "none"
            raise InvalidParams(
                f'{self._what} refused: field "{min(unknown)[:128]}": there is none of that name; '
                f"known: {known}"
            )

    def _names(self) -> set[str]:
        fields = self._model.model_fields
        return {*fields, *(name for each in fields.values() for name in _keys(each))}


class _ByField(ParamsCodec):
    """Accepts fields by name or alias; an AliasPath applies to whole payloads only."""

    __slots__ = ("names",)
    names: dict[str, str]

    def dump(self, params: dict[str, Any]) -> str:
        return super().dump({self.names.get(name, name): each for name, each in params.items()})


def _aliases(field: FieldInfo) -> list[str]:
    """Return the aliases of a field."""
    return [each for each in _choices(field) if isinstance(each, str)]


def _keys(field: FieldInfo) -> list[str]:
    """Return the payload keys that a field is read from, besides its own name."""
    inside = [str(each.path[0]) for each in _choices(field) if isinstance(each, AliasPath)]
    return [*_aliases(field), *inside]


def _choices(field: FieldInfo) -> list[str | AliasPath | None]:
    given = field.validation_alias or field.alias
    return [*given.choices] if isinstance(given, AliasChoices) else [given]


def _hint(field: FieldInfo) -> Any:
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
