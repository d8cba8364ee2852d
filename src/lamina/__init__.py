"""lamina decides what a language model sees.

A log of segments, a budget and the ledger of the last request go in; an envelope comes out that fits the
window, keeps the cached prefix, can bring back what it left out, and explains every decision.

These are the names that most programs need. Everything else is imported from where it is defined, as in
`from lamina.core.layout import Layout`; ARCHITECTURE.md says what each room holds.
"""

from typing import TYPE_CHECKING, Any

from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.explanation import explain, table
from lamina.core.memo import Memo
from lamina.core.options import Options
from lamina.core.recall import recall
from lamina.core.values import Budget, Entry, Form, Head, Layer, Ledger, Role, Segment
from lamina.diagnose.differences import diff
from lamina.diagnose.values import Difference
from lamina.errors import BadInput, BudgetExceeded, InvalidRequest, LaminaError
from lamina.fitting.request import Fitted, fit_request
from lamina.fitting.wrap import wrap

if TYPE_CHECKING:
    from lamina.agent.loop import Agent
    from lamina.sessions.session import Session

__all__ = [
    "Agent",
    "BadInput",
    "Budget",
    "BudgetExceeded",
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
    "Memo",
    "Options",
    "Role",
    "Segment",
    "Session",
    "build",
    "diff",
    "explain",
    "fit_request",
    "recall",
    "table",
    "wrap",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports the session and the agent when they are first used."""
        if name == "Session":
            from lamina.sessions.session import Session  # noqa: PLC0415

            return Session
        if name == "Agent":
            from lamina.agent.loop import Agent  # noqa: PLC0415

            return Agent
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
