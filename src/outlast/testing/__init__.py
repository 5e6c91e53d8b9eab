"""Test support: the harness of the pytest plugin, a fake clock, the conformance suite, servers.

Names are imported on first use, because the plugin needs only some of them.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from outlast.testing.clock import FakeClock
    from outlast.testing.drain import Drained, DrainedRun
    from outlast.testing.harness import Harness

__all__ = ["Drained", "DrainedRun", "FakeClock", "Harness"]

_MODULE_BY_NAME: _typing.Final = {
    "Drained": "outlast.testing.drain",
    "DrainedRun": "outlast.testing.drain",
    "FakeClock": "outlast.testing.clock",
    "Harness": "outlast.testing.harness",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(_MODULE_BY_NAME[name]), name)
    return value
