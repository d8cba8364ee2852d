"""A provider's request goes in, and one that fits comes out. Start reading in `request`.

- `request` fits one request. It uses `markers` for cache markers and `server_reports` for what the provider's
  server reported.
- `wrap` puts `fit_request` in front of an SDK's client. It uses `sdk_calls` for each call, `pending_call` for
  the request on its way, and `conversations` with `request_digests` to keep the ledger from call to call.
"""

from lamina.fitting.markers import Breakpoints, Lifetimes
from lamina.fitting.request import Fitted, RequestMemo, fit_request
from lamina.fitting.server_reports import ServerHelp
from lamina.fitting.wrap import wrap

__all__ = ["Breakpoints", "Fitted", "Lifetimes", "RequestMemo", "ServerHelp", "fit_request", "wrap"]
