"""Timeouts and worker settings of the seed tests."""

from typing import Final

PATIENCE: Final = 120.0
"""Seconds after which a silent child counts as stuck; nothing waits that long when all is well."""

QUICK: Final = {"tick": "20ms", "poll": "20ms"}
"""Settings of a worker that looks around often."""

SHORT: Final = {**QUICK, "lease": "1500ms", "renew": "100ms"}
"""Of one that is killed: its leases lapse while a test looks on."""

LONG: Final = {**QUICK, "lease": "10m", "renew": "100ms"}
"""The same, where the test says when they do: `Sql.expire_leases`."""

SOON: Final = "120s"
"""After so long what should happen at once counts as stuck, on however busy a machine."""
