"""A provider's request goes in, and one that fits comes out. Start reading in `request`.

- `request` fits one request. It uses `markers` for cache markers and `server_reports` for what the provider's
  server reported.
- `recalls` has the recall tool and what it answers.
- `wrap` puts `fit_request` in front of an SDK's client. It uses `sdk_calls` with `steps` for each call,
  `shown_answers` for what the client sees of it, `pending_call` for the request on its way, and
  `conversations` with `conversation`, `request_digests` and `conversation_store` to keep the ledger from call
  to call. `recall_loop` and `recall_streams` answer recalls inside a call, and `events` reports cuts, repairs
  and misses.
"""

from lamina.fitting.events import CutEvent, MissEvent, RepairEvent
from lamina.fitting.markers import Breakpoints, Lifetimes
from lamina.fitting.request import Fitted, RecallMode, RequestMemo, fit_request
from lamina.fitting.server_reports import ServerHelp
from lamina.fitting.wrap import conversation, fitted_of, last_fitted, wrap

__all__ = [
    "Breakpoints",
    "CutEvent",
    "Fitted",
    "Lifetimes",
    "MissEvent",
    "RecallMode",
    "RepairEvent",
    "RequestMemo",
    "ServerHelp",
    "conversation",
    "fit_request",
    "fitted_of",
    "last_fitted",
    "wrap",
]
