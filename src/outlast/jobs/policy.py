"""Policy of a job type: delivery, retry, queue, priority, executor and error classes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, Unpack

from outlast.core.classify import Classifier, ErrorClass
from outlast.core.delivery import Delivery
from outlast.core.duration import Duration, parse_duration
from outlast.core.limits import check_name, check_priority
from outlast.core.metadata import extended
from outlast.core.retry import Backoff, Delays, as_backoff
from outlast.errors import InvalidArgument, InvalidType

DeliveryName = Literal["lease", "linked", "once"]
VerdictName = Literal["transient", "permanent"]
ErrorNames = Mapping[type[BaseException], VerdictName]


class MetadataOptions(TypedDict, total=False):
    """Metadata of the jobs of a type, which `JobType.options` extends."""

    tags: Iterable[str] | None
    headers: Mapping[str, str] | None
    meta: Mapping[str, Any] | None


_NO_RETRY: Final = Backoff(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The validated settings of a job type, without its handler.

    `executor` is None if the handler's signature decides.
    """

    name: str
    delivery: Delivery = Delivery.LEASE
    retry: Backoff
    classifier: Classifier
    queue: str = "default"
    priority: int = 0
    max_runtime: timedelta | None = None
    executor: str | None = None
    metadata: str | None = None  # headers, tags and meta of its jobs, as stored text

    @classmethod
    def new(
        cls,
        *,
        name: str,
        delivery: str = "lease",
        retry: Backoff | Delays | None = None,
        queue: str = "default",
        priority: int = 0,
        max_runtime: Duration | None = None,
        executor: str | None = None,
        errors: Mapping[type[BaseException], str] | None = None,
        unknown_error: str = "transient",
        **metadata: Unpack[MetadataOptions],
    ) -> "Policy":
        """Return a validated policy; InvalidType names the setting that cannot be used."""
        try:
            check_name(name, what="the name of a job type")
        except InvalidArgument as error:
            raise InvalidType(str(error)) from error
        where = f'job type "{name}"'
        kind = _delivery(delivery, where)
        try:
            return cls(
                name=name,
                delivery=kind,
                retry=_retry(retry, kind, where),
                classifier=_classifier(errors or {}, unknown_error, where),
                queue=check_name(queue, what="queue"),
                priority=check_priority(priority),
                max_runtime=_runtime(max_runtime),
                executor=executor,
                metadata=extended(None, **metadata),
            )
        except InvalidType:
            raise
        except ValueError as error:
            raise InvalidType(f"{where}: {error}") from error


def _delivery(value: str, where: str) -> Delivery:
    known = ", ".join(each for each in Delivery if each is not Delivery.BROADCAST)
    try:
        delivery = Delivery(value)
    except ValueError:
        raise InvalidType(f"{where}: delivery is {value!r:.80}; use one of {known}") from None
    if delivery is Delivery.BROADCAST:
        raise InvalidType(
            f"{where}: delivery broadcast is reserved until the cluster exists; use one of {known}"
        )
    return delivery


def _retry(retry: Backoff | Delays | None, delivery: Delivery, where: str) -> Backoff:
    if delivery is Delivery.ONCE:
        if retry is not None:
            raise InvalidType(
                f"{where}: delivery once never runs again, so retry contradicts it; "
                'leave retry out, or use delivery "lease" or "linked"'
            )
        return _NO_RETRY
    return as_backoff(retry)


def _classifier(errors: Mapping[type[BaseException], str], unknown: str, where: str) -> Classifier:
    for kind in errors:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidType(f"{where}: errors names {kind!r:.80}; use exception classes")
    verdicts = {kind: _verdict(value, f"errors[{kind.__name__}]") for kind, value in errors.items()}
    return Classifier(errors=verdicts, unknown=_verdict(unknown, "unknown_error"))


def _verdict(value: str, what: str) -> ErrorClass:
    try:
        return ErrorClass(value)
    except ValueError:
        known = " or ".join(ErrorClass)
        raise ValueError(f"{what} is {value!r:.80}; use {known}") from None


def _runtime(value: Duration | None) -> timedelta | None:
    if value is None:
        return None
    span = parse_duration(value, what="max_runtime")
    if not span:
        raise ValueError('max_runtime is zero; give a span such as "10m", or leave it out')
    return span
