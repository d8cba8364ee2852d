"""lamina decides what a language model sees.

A log of segments, a budget and the ledger of the last request go in; an envelope comes out that fits the
window, keeps the cached prefix, can bring back what it left out, and explains every decision.
"""

from lamina.caches import CacheRules, cost, rules_for, simulator
from lamina.core.arrange import Cap, Filter, Layout
from lamina.core.build import build, plan_cut
from lamina.core.envelope import Envelope
from lamina.core.explanation import Manifest, explain, table
from lamina.core.kinds import KINDS, Kind, Retention
from lamina.core.laws import audit
from lamina.core.ledger import rewind
from lamina.core.memo import Memo
from lamina.core.options import Options
from lamina.core.recall import recall
from lamina.core.repair import Repairs
from lamina.core.tokens import Count, Counter, calibrate
from lamina.core.values import (
    Budget,
    Calibration,
    Cut,
    Document,
    Entry,
    Form,
    Head,
    Image,
    Layer,
    Ledger,
    Raw,
    Role,
    Segment,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import Wording
from lamina.diagnose.differences import Difference, diff
from lamina.errors import BadInput, BudgetExceeded, InvalidRequest, LaminaError, LawBroken, NotFound
from lamina.fitting.request import Fitted, Lifetimes, RequestMemo, ServerHelp, fit_request
from lamina.fitting.wrap import wrap

__all__ = [
    "KINDS",
    "BadInput",
    "Budget",
    "BudgetExceeded",
    "CacheRules",
    "Calibration",
    "Cap",
    "Count",
    "Counter",
    "Cut",
    "Difference",
    "Document",
    "Entry",
    "Envelope",
    "Filter",
    "Fitted",
    "Form",
    "Head",
    "Image",
    "InvalidRequest",
    "Kind",
    "LaminaError",
    "LawBroken",
    "Layer",
    "Layout",
    "Ledger",
    "Lifetimes",
    "Manifest",
    "Memo",
    "NotFound",
    "Options",
    "Raw",
    "Repairs",
    "RequestMemo",
    "Retention",
    "Role",
    "Segment",
    "ServerHelp",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "Wording",
    "audit",
    "build",
    "calibrate",
    "cost",
    "diff",
    "explain",
    "fit_request",
    "plan_cut",
    "recall",
    "rewind",
    "rules_for",
    "simulator",
    "table",
    "wrap",
]
