"""Auth token of an etcd user: fetched by one request at a time, replaced when it is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from threading import Lock as Mutex
from typing import Final

UNAUTHENTICATED: Final = 16

Fetch = Callable[[], Awaitable[str]]
"""Asks the cluster for a new token."""


class TokenRefused(Exception):
    """The cluster refused the token of a request, and did not execute the request."""


class AuthToken:
    """The current token, shared by all requests of a client, on every event loop."""

    def __init__(self) -> None:
        self._token: str | None = None
        self._fetching: Future[str] | None = None
        self._guard = Mutex()

    async def current(self, fetch: Fetch) -> str:
        """Return the token; the first caller without one fetches it, and the others wait."""
        with self._guard:
            if self._token is not None:
                return self._token
            others, own = self._fetching, Future[str]()
            self._fetching = others or own
        if others is not None:
            return await asyncio.shield(asyncio.wrap_future(others))
        return await self._fetch(fetch, own)

    def refuse(self, token: str) -> None:
        """Drop a refused token, unless another one has replaced it already."""
        with self._guard:
            if self._token == token:
                self._token = None

    async def _fetch(self, fetch: Fetch, told: "Future[str]") -> str:
        try:
            token = await fetch()
        except BaseException as error:
            self._end(None)
            told.set_exception(
                error
                if isinstance(error, Exception)
                else TokenRefused("the request for a token was cancelled")
            )
            told.exception()  # no other request may wait for it
            raise
        self._end(token)
        told.set_result(token)
        return token

    def _end(self, token: str | None) -> None:
        with self._guard:
            self._token, self._fetching = token, None


def is_refused_token(code: int | None, message: str) -> bool:
    """Return True if the token has expired, or is older than the last change of rights."""
    return code == UNAUTHENTICATED or "auth store is old" in message
