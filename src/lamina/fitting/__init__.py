"""A provider's request goes in, and one that fits comes out. It has no state. Start reading in `request`.

- `policy` says how: one value that every door takes.
- `request` fits one request: `building` decides who makes a cut, and `markers` places cache markers.
  `fitted` is what comes out.
- `server_reports`, `server_clearing` and `server_compaction` are about what the provider's server does with
  a history by itself.
- `own_tools` is the table of tools that lamina answers: `recalls` and `context_tool`.

`lamina.conversations` keeps the ledger from request to request, for every door.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.fitting.fitted import Fitted
    from lamina.fitting.markers import Breakpoints, Lifetimes
    from lamina.fitting.policy import Policy, RecallMode
    from lamina.fitting.request import RequestMemo, fit_request, translate
    from lamina.fitting.server_compaction import (
        ON_DEMAND_BETA,
        CompactionCall,
        ServerCompaction,
        apply_compaction,
        plan_compaction,
        read_compaction,
    )
    from lamina.fitting.server_reports import ServerUse

__all__ = [
    "ON_DEMAND_BETA",
    "Breakpoints",
    "CompactionCall",
    "Fitted",
    "Lifetimes",
    "Policy",
    "RecallMode",
    "RequestMemo",
    "ServerCompaction",
    "ServerUse",
    "apply_compaction",
    "fit_request",
    "plan_compaction",
    "read_compaction",
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
            "lamina.fitting.server_compaction": (
                "ON_DEMAND_BETA CompactionCall ServerCompaction apply_compaction plan_compaction "
                "read_compaction"
            ),
            "lamina.fitting.server_reports": "ServerUse",
        },
    )
