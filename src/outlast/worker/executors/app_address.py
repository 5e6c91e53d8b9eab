"""App addresses: the `module:attribute` from which a handler process imports the app."""

import re
import sys
from collections.abc import Collection, Mapping
from typing import Final

from outlast.errors import InvalidType
from outlast.jobs.registry import Registry
from outlast.worker.run_outcome import AnyType

_ADDRESS: Final = re.compile(r"[\w.]+:\w+")


def find_addresses(
    registry: Registry, types: Collection[str], given: str | None
) -> Mapping[str, str]:
    """Return the app address of each type that runs in handler processes.

    `given` is the address the caller chose. Raises InvalidType if it is malformed, or if none was
    given and none can be found.
    """
    kinds = [registry.get(name) for name in types]
    processes = [kind for kind in kinds if kind.executor == "process"]
    if given is not None and not _ADDRESS.fullmatch(given):
        raise InvalidType(f'app_address is {given!r:.80}; write it as "myapp.jobs:app"')
    return {kind.name: given or _find_address(kind, registry) for kind in processes}


def _find_address(kind: AnyType, registry: Registry) -> str:
    """Return the app's name in the module of the handler, whose import registers the type."""
    module = kind.function.__module__
    where = f'job type "{kind.name}" runs in a process of its own'
    if module == "__main__":
        raise InvalidType(
            f"{where}, which cannot import the script that was started; move the app and its "
            "handlers into a module, and import that"
        )
    for name, value in vars(sys.modules[module]).items():
        if getattr(value, "registry", None) is registry:
            return f"{module}:{name}"
    raise InvalidType(
        f"{where}, but its module {module} has no name for the app at its top level; import the "
        'app there, or use app.worker(app_address="myapp:app")'
    )
