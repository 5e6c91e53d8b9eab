"""The name of a process that the operating system proves dead."""

import subprocess
import uuid

from outlast.process_identity import process_scope


def dead_process_name(prefix: str) -> str:
    """Return a name of this machine whose process has ended."""
    ended = subprocess.Popen(["true"])  # noqa: S607 - found on every path
    ended.wait()
    return f"{prefix}{process_scope()}.{ended.pid}.1.{uuid.uuid4()}"
