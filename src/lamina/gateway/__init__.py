"""A gateway in front of any client: what need not change leaves byte for byte as it came.

Start reading in `exchange`: it shows one request from the socket to the upstream and back.

- `routes`, `upstreams` and `profiles` say where a request goes and what that server cannot take.
- `security` says who may ask, `refusals` how an error looks in each API.
- `bodies` reads a body and `fit` decides what leaves instead of it. `conversations` and `identity` find out
  which conversation it continues, and `conversation_store` has every call of the store.
- `stream` passes the answer on, `usage` reads what it reports, `misses` says why a cache missed.
- `config` has the settings, `app` and `server` put it all on a socket.

It needs the extra `gateway`.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.gateway.account import AnsweredRequest, GatewayAccount
    from lamina.gateway.config import GatewaySettings, load_gateway_settings

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
            "lamina.gateway.account": "AnsweredRequest GatewayAccount",
            "lamina.gateway.config": "GatewaySettings load_gateway_settings",
        },
    )
