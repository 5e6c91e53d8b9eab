"""Informs the service manager that started this worker, such as systemd, by `sd_notify`."""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Final

log = logging.getLogger("outlast.worker")

RETRY_S: Final = 0.1
"""Seconds until a message is sent again that the service manager had no room for."""

RECHECK_S: Final = 0.5
"""Seconds until a worker that was not live at the time of its message is looked at again."""


class ServiceManager:
    """Sends messages to the socket of the service manager; without one it does nothing."""

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        self._address = address
        self._watchdog_s = watchdog_s
        self._unsent: deque[str] = deque()

    @classmethod
    def take(cls, environment: MutableMapping[str, str]) -> "ServiceManager":
        """Return the one that the environment names, and remove it from the environment.

        No child process or command may speak for the worker.
        """
        path = environment.pop("NOTIFY_SOCKET", "")
        usec, pid = (environment.pop(name, "") for name in ("WATCHDOG_USEC", "WATCHDOG_PID"))
        if path and path[0] not in "/@":
            log.warning("NOTIFY_SOCKET is neither a path nor an abstract name; it is ignored")
            path = ""
        is_ours = pid in {"", str(os.getpid())}
        watchdog_s = int(usec) / 1e6 if is_ours and usec.isascii() and usec.isdigit() else 0.0
        return cls(path.replace("@", "\0", 1) if path[:1] == "@" else path, watchdog_s or None)

    def notify(self, message: str) -> None:
        """Send a message, after those that the service manager has not taken yet."""
        if self._address:
            self._unsent.append(message)
            self._flush()

    def _flush(self) -> None:
        """Send what is unsent; try again later if the service manager is busy."""
        while self._unsent:
            try:
                self._send(self._unsent[0])
            except BlockingIOError:
                asyncio.get_running_loop().call_later(RETRY_S, self._flush)
                return
            except OSError as error:
                log.warning("cannot tell the service manager %s: %s", self._unsent[0], error)
            self._unsent.popleft()

    def _send(self, message: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.setblocking(False)
            end.sendto(message.encode(), self._address)

    async def keep_alive(self, is_live: Callable[[], bool]) -> None:
        """Send WATCHDOG=1 twice per interval of the service manager, while the worker is live."""
        if not self._address or self._watchdog_s is None:
            return
        while True:
            if is_live():
                if not self._unsent:
                    self.notify("WATCHDOG=1")
                await asyncio.sleep(self._watchdog_s / 2)
            else:
                await asyncio.sleep(min(RECHECK_S, self._watchdog_s / 2))
