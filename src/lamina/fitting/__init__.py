"""A provider's request goes in, one that fits comes out. Start reading in `request`.

`request` fits one request, `conversations` keeps the ledger from call to call, `wrap` does both in front of
an SDK's client. `markers` plans cache markers, `server_reports` reads what a provider reported.
"""

from lamina.fitting.markers import Breakpoints, Lifetimes
from lamina.fitting.request import Fitted, RequestMemo, fit_request
from lamina.fitting.server_reports import ServerHelp
from lamina.fitting.wrap import wrap

__all__ = ["Breakpoints", "Fitted", "Lifetimes", "RequestMemo", "ServerHelp", "fit_request", "wrap"]
