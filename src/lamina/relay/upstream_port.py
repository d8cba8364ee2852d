"""What sends a request to an upstream, and what comes back: a socket, or the transport of an SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import lru_cache
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from lamina.relay.security import Headers


class CannotConnect(Exception):
    """There is no connection to an upstream. The cause is the error of the system."""


class DroppedByUpstream(ConnectionError):
    """The upstream closed the connection before it had sent a byte of an answer.

    `had_left`: the connection had waited for the request, and the upstream may have left it before.
    """

    had_left = False


class BadAnswer(ConnectionError):
    """What came is not HTTP, or ended before its end."""


class Origin(NamedTuple):
    """A server, as an address names it. `base` is the path that all others are put behind."""

    is_secure: bool
    host: str
    port: int
    authority: str
    base: str


@lru_cache(maxsize=256)
def read_origin(address: str) -> Origin:
    """The server of an address: `https://api.anthropic.com`."""
    parts = urlsplit(address)
    is_secure = parts.scheme == "https"
    host = (parts.hostname or "").encode("idna").decode()
    authority = f"[{host}]" if ":" in host else host
    port = 443 if is_secure else 80
    if parts.port is not None:
        port = parts.port
        authority = f"{authority}:{port}"
    return Origin(is_secure, host, port, authority, parts.path.rstrip("/"))


class ProviderReply(Protocol):
    """The answer to one request. What has arrived is read here; the rest is waited for.

    `headers` are by their names in lower case; of one that came twice the first counts. `is_complete`: all
    of the answer has arrived.
    """

    status: int
    raw_headers: list[tuple[bytes, bytes]]
    headers: dict[str, str]
    is_complete: bool

    @property
    def is_at_hand(self) -> bool:
        """Whether the next `read` does not wait."""

    @property
    def is_read(self) -> bool:
        """Whether all of it has been read."""

    async def read(self) -> bytes:
        """The next bytes; b"" after the last ones. Raises ConnectionError if the rest will not come."""

    def release(self) -> None:
        """Nobody reads on. An answer that has not come to its end is stopped."""


class Connections(Protocol):
    """The way to the upstreams."""

    async def ask(
        self,
        method: str,
        origin: Origin,
        target: bytes,
        headers: Headers,
        body: bytes | AsyncIterator[bytes] | None,
        *,
        is_again: bool = False,
    ) -> ProviderReply:
        """Send a request. Returns its answer when the headers have come.

        Raises CannotConnect, BadAnswer, or another OSError.
        """
