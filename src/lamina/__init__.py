"""lamina decides what a language model sees.

A log of segments, a budget and the ledger of the last request go in; an envelope comes out that fits the
window, keeps the cached prefix, can bring back what it left out, and explains every decision.

These are the names that most programs need. Everything else is imported from where it is defined, as in
`from lamina.core.layout import Layout`; ARCHITECTURE.md says what each room holds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lamina.agent.loop import Agent
    from lamina.core.build import BuildMemo, build
    from lamina.core.envelope import Envelope
    from lamina.core.explanation import explain
    from lamina.core.options import Options
    from lamina.core.recall import recall
    from lamina.core.values import Budget, Entry, Form, Head, Layer, Ledger, Role, Segment
    from lamina.diagnose.differences import diff
    from lamina.diagnose.values import Difference
    from lamina.errors import BadInput, BudgetExceeded, InvalidRequest, LaminaError
    from lamina.fitting.policy import Policy
    from lamina.fitting.request import Fitted, fit_request, translate
    from lamina.gateway.serving import serve
    from lamina.sessions.session import Session
    from lamina.wrapped.client import wrap

    __version__: str

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
    "Head",
    "InvalidRequest",
    "LaminaError",
    "Layer",
    "Ledger",
    "Options",
    "Policy",
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
    "wrap",
]

_PLACES = {
    "Agent": "lamina.agent.loop",
    "BadInput": "lamina.errors",
    "Budget": "lamina.core.values",
    "BudgetExceeded": "lamina.errors",
    "Difference": "lamina.diagnose.values",
    "Entry": "lamina.core.values",
    "Envelope": "lamina.core.envelope",
    "Fitted": "lamina.fitting.request",
    "Form": "lamina.core.values",
    "Head": "lamina.core.values",
    "InvalidRequest": "lamina.errors",
    "LaminaError": "lamina.errors",
    "Layer": "lamina.core.values",
    "Ledger": "lamina.core.values",
    "BuildMemo": "lamina.core.build",
    "Options": "lamina.core.options",
    "Policy": "lamina.fitting.policy",
    "Role": "lamina.core.values",
    "Segment": "lamina.core.values",
    "Session": "lamina.sessions.session",
    "build": "lamina.core.build",
    "diff": "lamina.diagnose.differences",
    "explain": "lamina.core.explanation",
    "fit_request": "lamina.fitting.request",
    "recall": "lamina.core.recall",
    "serve": "lamina.gateway.serving",
    "translate": "lamina.fitting.request",
    "wrap": "lamina.wrapped.client",
}
"""Where each name is defined. It is imported when it is first used, so that `import lamina` is quick."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            value = import_module("importlib.metadata").version("lamina-context")
        elif name in _PLACES:
            value = getattr(import_module(_PLACES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
