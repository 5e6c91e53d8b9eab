"""The address of the probes of a worker: a host and a port."""

from ipaddress import ip_address
from typing import Final, NamedTuple

from outlast.core.limits import repr_short
from outlast.errors import InvalidArgument

MAX_PORT: Final = 65_535


class ProbeAddress(NamedTuple):
    """A numeric host and a port; port 0 stands for any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address as it is written in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine reach it."""
        return ip_address(self.host).is_loopback


def parse_address(text: str) -> ProbeAddress:
    """Return the address; InvalidArgument if it is none. A name other than localhost is none."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    try:
        host = str(ip_address("127.0.0.1" if host == "localhost" else host))
    except ValueError:
        host = ""
    is_port = port.isascii() and port.isdigit() and len(port) <= len(str(MAX_PORT))
    if not host or not is_port or int(port) > MAX_PORT:
        raise InvalidArgument(
            f"{repr_short(text)} is not an address; write a numeric host and a port, such as "
            "127.0.0.1:8080 or [::1]:8080"
        )
    return ProbeAddress(host, int(port))
