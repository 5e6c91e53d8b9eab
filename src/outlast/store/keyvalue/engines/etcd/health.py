"""Health of an etcd cluster, from a member's status."""

from collections.abc import Mapping
from typing import Any, Final

DEFAULT_QUOTA: Final = 2 * 2**30
"""Bytes of `--quota-backend-bytes` by default; members before 3.6 do not report theirs."""

NEARLY_FULL: Final = 0.8
_REMEDY: Final = (
    "compact it (etcdctl compact REVISION), defragment each member (etcdctl defrag --cluster)"
)


def warnings(status: Mapping[str, Any]) -> list[str]:
    """Return warnings about active alarms and a database that is nearly full."""
    alarms = [str(error) for error in status.get("errors") or ()]
    return [*map(_alarm, alarms), *([] if alarms else _size(status))]


def _alarm(error: str) -> str:
    if "NOSPACE" in error:
        return (
            f"etcd is full and refuses writes ({error}); {_REMEDY}, then disarm the alarm "
            "(etcdctl alarm disarm)"
        )
    return f"etcd reports an error: {error}"


def _size(status: Mapping[str, Any]) -> list[str]:
    told = int(status.get("dbSizeQuota") or 0)
    quota, size = told or DEFAULT_QUOTA, int(status.get("dbSize") or 0)
    if size < NEARLY_FULL * quota:
        return []
    name = "its quota" if told else "the default quota, as this version does not report its own"
    warning = (
        f"etcd's database has {_mib(size)} of {_mib(quota)} ({name}), and refuses writes when it "
        f"is full; {_REMEDY}, keep finished jobs for a shorter time, or raise "
        "--quota-backend-bytes"
    )
    return [warning]


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
