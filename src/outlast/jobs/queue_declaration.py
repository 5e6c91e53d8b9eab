"""Settings of queues that are declared in code, and what was last written of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Final

from outlast.core.declaration import declared_twice
from outlast.core.document import Document
from outlast.core.limits import check_name
from outlast.core.queue import check_settings
from outlast.errors import InvalidArgument

KIND: Final = "queue"
"""Kind of the documents that hold the declarations which were last written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDeclaration:
    """Settings of a queue that code declares; `place` says where, for messages."""

    name: str
    settings: Mapping[str, Any]
    place: str = ""

    def to_text(self, app: str) -> str:
        """Return the document text of this declaration by an app."""
        return json.dumps({"app": app, "settings": dict(self.settings)}, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredQueue:
    """The declaration of a queue that a worker wrote last: the settings, and the app."""

    name: str
    app: str
    settings: Mapping[str, Any]


def declare_queue(
    name: str,
    *,
    place: str,
    known: Mapping[str, QueueDeclaration],
    **options: Any | EllipsisType,
) -> QueueDeclaration:
    """Return a checked declaration; InvalidArgument if it cannot be used."""
    check_name(name, what="the name of a queue")
    if name in known:
        raise InvalidArgument(declared_twice("queue", name, known[name].place, place))
    try:
        settings = check_settings(options)
    except InvalidArgument as error:
        raise InvalidArgument(f"queue {name}: {error}") from None
    if not settings:
        raise InvalidArgument(
            f"queue {name} is declared without a setting; give concurrency, ordering or gap, or "
            "leave the declaration out: a queue needs none"
        )
    return QueueDeclaration(name=name, settings=settings, place=place)


def from_document(record: Document) -> DeclaredQueue:
    """Return the declaration that a document holds."""
    fields = json.loads(record.value)
    return DeclaredQueue(name=record.key, app=fields["app"], settings=fields["settings"])
