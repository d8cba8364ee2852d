"""A provider's request goes in, and one that fits comes out. It has no state. Start reading in `request`.

- `policy` says how: one value that every door takes.
- `request` fits one request. It uses `markers` for cache markers and `server_reports` for what the provider's
  server reported.
- `recalls` has the recall tool and what it answers.

`lamina.conversations` keeps the ledger from request to request, for every door.
"""

from lamina.fitting.markers import Breakpoints, Lifetimes
from lamina.fitting.policy import Policy, RecallMode
from lamina.fitting.request import Fitted, RequestMemo, fit_request, translate
from lamina.fitting.server_reports import ServerUse

__all__ = [
    "Breakpoints",
    "Fitted",
    "Lifetimes",
    "Policy",
    "RecallMode",
    "RequestMemo",
    "ServerUse",
    "fit_request",
    "translate",
]
