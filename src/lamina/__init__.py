"""lamina decides what a language model sees.

A log of segments, a budget and the ledger of the last request go in; an envelope comes out that fits the
window, keeps the cached prefix, can bring back what it left out, and explains every decision.

These are the names that most programs need. Everything else is imported from the package of its room, as in
`from lamina.stores import open_store`. docs/api.md has every public name with its signature; what is not on
that page may change without notice. ARCHITECTURE.md says what each room holds.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina._version import __version__
    from lamina.agent.loop import Agent
    from lamina.core.build import build
    from lamina.core.envelope import Envelope
    from lamina.core.explanation import explain
    from lamina.core.memo import BuildMemo
    from lamina.core.options import Options
    from lamina.core.recall import recall
    from lamina.core.values import Budget, Entry, Form, Layer, Ledger, RequestHead, Role, Segment
    from lamina.diagnose.differences import diff
    from lamina.diagnose.values import Difference
    from lamina.errors import BadInput, BudgetExceeded, InvalidRequest, LaminaError
    from lamina.fitting.policy import Policy
    from lamina.fitting.request import Fitted, fit_request, translate
    from lamina.gateway.serving import serve
    from lamina.sessions.session import Session
    from lamina.wrapped.client import wrap
    from lamina.wrapped.transport import transport

__all__ = [
    "Agent",
    "BadInput",
    "Budget",
    "BudgetExceeded",
    "BuildMemo",
    "Difference",
    "Entry",
    "Envelope",
    "Fitted",
    "Form",
    "InvalidRequest",
    "LaminaError",
    "Layer",
    "Ledger",
    "Options",
    "Policy",
    "RequestHead",
    "Role",
    "Segment",
    "Session",
    "__version__",
    "build",
    "diff",
    "explain",
    "fit_request",
    "recall",
    "serve",
    "translate",
    "transport",
    "wrap",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina._version": "__version__",
            "lamina.agent.loop": "Agent",
            "lamina.core.build": "build",
            "lamina.core.envelope": "Envelope",
            "lamina.core.explanation": "explain",
            "lamina.core.memo": "BuildMemo",
            "lamina.core.options": "Options",
            "lamina.core.recall": "recall",
            "lamina.core.values": "Budget Entry Form RequestHead Layer Ledger Role Segment",
            "lamina.diagnose.differences": "diff",
            "lamina.diagnose.values": "Difference",
            "lamina.errors": "BadInput BudgetExceeded InvalidRequest LaminaError",
            "lamina.fitting.policy": "Policy",
            "lamina.fitting.request": "Fitted fit_request translate",
            "lamina.gateway.serving": "serve",
            "lamina.sessions.session": "Session",
            "lamina.wrapped.client": "wrap",
            "lamina.wrapped.transport": "transport",
        },
    )
