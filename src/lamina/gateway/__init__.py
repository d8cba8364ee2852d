"""A gateway in front of any client: what need not change leaves byte for byte as it came.

The way of a request, module by module. Start reading in `exchange`:

    server ──▶ app ──▶ exchange ──▶ lamina.relay

- `app` puts the gateway's own paths beside everything else, `server` puts both on a socket, and `serving` and
  `supervisor` run it. `client_connection` speaks with a client, `client_bodies` reads what it sends, and
  `request_bodies` decodes it.
- `lamina.relay` has the rest of the way: it knows no socket. Its requests leave over an
  `upstream_connection`.
- `metrics` counts for Prometheus, `inspection` shows the inspector, and `account` says what it all cost.

It needs the extra `run`.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.costs.uncut_requests import AnsweredRequest
    from lamina.gateway.account import GatewayAccount
    from lamina.relay.config import GatewaySettings, load_gateway_settings

__all__ = [
    "AnsweredRequest",
    "GatewayAccount",
    "GatewaySettings",
    "load_gateway_settings",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.costs.uncut_requests": "AnsweredRequest",
            "lamina.gateway.account": "GatewayAccount",
            "lamina.relay.config": "GatewaySettings load_gateway_settings",
        },
    )
