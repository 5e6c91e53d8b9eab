"""The message of an exception, without the inputs that a validation error quotes."""

from typing import Any, Final

from outlast.core.limits import truncate

UNPRINTABLE: Final = "[unprintable]"
_MAX_FIELDS: Final = 100


def error_message(error: BaseException) -> str:
    """Return the message of an exception, cut to the size that a store keeps.

    Pydantic quotes inputs, shortened in the middle, so that no search for the values finds them.
    Its message is written again from the fields and reasons.
    """
    try:
        return truncate(_validation_message(error) if is_validation_error(error) else str(error))
    except Exception:  # noqa: BLE001 - the error's own code raised
        return UNPRINTABLE


def is_validation_error(error: BaseException) -> bool:
    """Return whether this is Pydantic's error, which the core recognises without importing it."""
    return any(
        each.__name__ == "ValidationError" and each.__module__.partition(".")[0].startswith("pydan")
        for each in type(error).__mro__
    )


def _validation_message(error: Any) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [_line(each) for each in found[:_MAX_FIELDS]]
    head = f"{len(found)} validation error{'s' * (len(found) != 1)} for {error.title}"
    return "\n".join([head, *lines])


def _line(found: dict[str, Any]) -> str:
    where = ".".join(str(step) for step in found["loc"])
    return f"{where}\n  {found['msg']} [type={found['type']}]"
