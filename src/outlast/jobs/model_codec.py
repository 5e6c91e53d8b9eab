"""The payload of a handler class as JSON text: the fields of its model."""

from typing import Annotated, Any, Final

from pydantic import AliasChoices, AliasPath, BaseModel, ValidationError
from pydantic.fields import FieldInfo

from outlast.errors import InvalidParams
from outlast.jobs.codec import ParamsCodec, adapter, describe_validation_error, reader, writer
from outlast.jobs.payload_limits import check_params, to_text

PAYLOAD: Final = "payload"
"""By which name the handler gets the model."""


class ModelCodec:
    """Takes a model, or its fields by name; gives the handler a model."""

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
        """The JSON text of the payload; InvalidParams or PayloadTooLarge."""
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
        """The model, for the handler; InvalidParams if the text no longer fits it."""
        try:
            return {PAYLOAD: self._from_json(text)}
        except ValidationError as error:
            raise InvalidParams(describe_validation_error(self._what, error)) from None

    def partial(self) -> ParamsCodec:
        """For some of the fields, each by itself; what concerns several is checked with all."""
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
        self.load(text)  # a model can be changed behind Pydantic's back
        return text

    def _check_names(self, params: dict[str, Any]) -> None:
        """Also for a model that would ignore them: who gives a name means something by it."""
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
    """Takes an alias for its field; an alias that looks inside something is for whole payloads."""

    __slots__ = ("names",)
    names: dict[str, str]

    def dump(self, params: dict[str, Any]) -> str:
        return super().dump({self.names.get(name, name): each for name, each in params.items()})


def _aliases(field: FieldInfo) -> list[str]:
    """The other names of a field."""
    return [each for each in _choices(field) if isinstance(each, str)]


def _keys(field: FieldInfo) -> list[str]:
    """The keys of a payload that a field is read from, beside its own name."""
    inside = [str(each.path[0]) for each in _choices(field) if isinstance(each, AliasPath)]
    return [*_aliases(field), *inside]


def _choices(field: FieldInfo) -> list[str | AliasPath | None]:
    given = field.validation_alias or field.alias
    return [*given.choices] if isinstance(given, AliasChoices) else [given]


def _hint(field: FieldInfo) -> Any:
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
