"""A provider's request goes in, and one that fits comes out. It has no state. Start reading in `request`.

- `policy` says how: one value that every door takes.
- `request` fits one request: `building` builds it, and `markers` places cache markers. `fitted` is what comes
  out.
- `server_reports` is about what the provider's server reported, and what it is asked to do.
- `recalls` has the tool whose calls lamina answers.

`lamina.conversations` keeps the ledger from request to request, for every door.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.fitting.fitted import Fitted
    from lamina.fitting.markers import Breakpoints, Lifetimes
    from lamina.fitting.policy import Policy, RecallMode
    from lamina.fitting.request import RequestMemo, fit_request, translate

__all__ = [
    "Breakpoints",
    "Fitted",
    "Lifetimes",
    "Policy",
    "RecallMode",
    "RequestMemo",
    "fit_request",
    "translate",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.fitting.fitted": "Fitted",
            "lamina.fitting.markers": "Breakpoints Lifetimes",
            "lamina.fitting.policy": "Policy RecallMode",
            "lamina.fitting.request": "RequestMemo fit_request translate",
        },
    )
