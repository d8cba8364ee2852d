"""The server on a socket, guarded like the gateway.

On a loopback address it answers only to loopback names, so DNS rebinding gets 421. A page of another site
gets 403. Any other address needs an access token, which clients send as `Authorization: Bearer …`. All of
this is checked before a body is read.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Receive, Scope, Send

from lamina.errors import BadInput
from lamina.relay.config import SHORTEST_TOKEN, AccessToken, GatewaySettings
from lamina.relay.refusals import Refusal
from lamina.relay.security import admit_visitor

TOKEN_VARIABLE = "LAMINA_MCP_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable with the access token."""

PATH = "/mcp"


class HttpAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen, and who may ask. `hosts` are allowed besides the loopback names."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    hosts: tuple[str, ...] = ()


def make_app(server: Server[Any], address: HttpAddress) -> ASGIApp:
    """The server as an ASGI application. Raises BadInput for an address that would be open to everyone."""
    if address.token and len(address.token) < SHORTEST_TOKEN:
        hint = f"use {SHORTEST_TOKEN} characters or more"
        raise BadInput("the access token is too short", place=TOKEN_VARIABLE, hint=hint)
    tokens: tuple[AccessToken, ...] = ()
    if address.token:
        tokens = (AccessToken(sha256=sha256(address.token.encode()).hexdigest()),)
    guard = GatewaySettings(host=address.host, port=address.port, hosts=address.hosts, tokens=tokens)
    if guard.is_public and not tokens:
        raise BadInput(
            f"{address.host} can be reached from other machines, and no access token is set",
            place="host",
            hint=f"set {TOKEN_VARIABLE}, or listen on 127.0.0.1",
        )
    # The guard here checks more than the one of the package, so that one is off.
    own_guard_off = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    return GuardedApp(
        server.streamable_http_app(streamable_http_path=PATH, transport_security=own_guard_off), guard
    )


class GuardedApp:
    """An application that only visitors reach whom the gateway would answer, too."""

    def __init__(self, app: ASGIApp, guard: GatewaySettings) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                admit_visitor(scope["headers"], self._guard, names="--allow-host")
            except Refusal as refusal:
                await _refuse(refusal, send)
                return
        await self._app(scope, receive, send)


async def serve_http(server: Server[Any], address: HttpAddress, announce: Callable[[str], None]) -> None:
    """Serve until the process is told to stop. `announce` gets the URL once clients can connect."""
    app = make_app(server, address)
    config = uvicorn.Config(
        app,
        host=address.host,
        port=address.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=2,
    )
    await _AnnouncingServer(config, address, announce).serve()


class _AnnouncingServer(uvicorn.Server):
    """Uvicorn's server, which says where it listens as soon as it does."""

    def __init__(self, config: uvicorn.Config, address: HttpAddress, announce: Callable[[str], None]) -> None:
        super().__init__(config)
        self._address = address
        self._announce = announce

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if not self.started:
            return
        port = self.servers[0].sockets[0].getsockname()[1]
        host = self._address.host
        if ":" in host:
            host = f"[{host}]"
        self._announce(f"http://{host}:{port}{PATH}")


async def _refuse(refusal: Refusal, send: Send) -> None:
    error = {"code": -32000, "message": refusal.message}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
