"""A gateway in front of any client: what need not change leaves byte for byte as it came.

The way of a request, module by module. Start reading in `exchange`, which shows it on one page:

    app ──▶ exchange ──▶ fit ──▶ upstream_answer ──▶ answer ──▶ recording

- `app` puts the gateway's own paths beside everything else, `server` puts both on a socket. `config` has
  the settings, and `limits` what nobody sets.
- `security` says who may ask. `routes`, `upstreams` and `profiles` say where a request goes and what that
  server cannot take. `refusals` says how an error looks in each API.
- `request_bodies` reads a body. `identity` and `conversation_index` find out which conversation a request
  continues. `store_access` has every call of the store, and `saving` says when it is called.
- `fit` decides what leaves. `policies` chooses how it is fitted, `sizes` whether it has to be, and `fit_call`
  runs `fit_request`.
- `upstream_answer` sends it, over an `upstream_connection`. `answer` passes the answer on, without what the
  model recalls; `stream` writes it, and `usage` reads what it reports.
- `sent_calls` mends a request that was refused, sends one on that recalled something, and keeps what the next
  one depends on. `recording` keeps what left and what came back. `misses` says why a cache missed, and
  `account` what it all cost.

It needs the extra `run`.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.conversations.uncut_requests import AnsweredRequest
    from lamina.gateway.account import GatewayAccount
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
            "lamina.conversations.uncut_requests": "AnsweredRequest",
            "lamina.gateway.account": "GatewayAccount",
            "lamina.gateway.config": "GatewaySettings load_gateway_settings",
        },
    )
