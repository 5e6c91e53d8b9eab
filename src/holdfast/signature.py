"""What a handler takes and returns, read once from its signature."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, PydanticUndefinedAnnotation, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from typing_extensions import NotRequired, TypedDict

from holdfast.context import Run
from holdfast.core.outcome import Outcome
from holdfast.errors import InvalidParams, InvalidType, PermanentError
from holdfast.payload import check_params, check_value, to_text

Executor = Literal["async", "thread"]

_CONFIG: Final = ConfigDict(
    extra="forbid", allow_inf_nan=False, ser_json_bytes="base64", val_json_bytes="base64"
)
# Values of these types are exactly what they say once validated, so writing them needs no check.
_PLAIN: Final = frozenset({int, str, float, bool, NoneType, Any})
_SHOWN: Final = 5
_UNREADABLE: Final = {"string_unicode": "holds a lone surrogate, which cannot be stored; remove it"}


class Signature:
    """The typed edges of one handler: params in, result out, both as JSON text."""

    __slots__ = ("_load_result", "_loads", "_names", "_title", "_to_json", "_validate", …)
