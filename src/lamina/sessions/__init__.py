"""Conversations in a store: load, gather, build, save. Start reading in `session`."""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.context.port import Source
    from lamina.core.history_window import LastN
    from lamina.core.layout import Layout
    from lamina.dialects.port import PlainHead, Tool
    from lamina.fitting.recalls import RECALL, Recalled, TextMatch
    from lamina.sessions.answers import Recorded
    from lamina.sessions.attachments import Attachable, Mentioned, files_mentioned
    from lamina.sessions.reports import Metrics, TurnReport
    from lamina.sessions.search import open_search
    from lamina.sessions.session import Session
    from lamina.sessions.setup import RuntimeOptions, Setup, SetupOptions, Template
    from lamina.sessions.system_sections import Persona, Stored, UsualPersona, Words
    from lamina.sessions.turns import Utterance
    from lamina.settings import Settings
    from lamina.stores.port import Store
    from lamina.summaries import Condense, Terms

__all__ = [
    "RECALL",
    "Attachable",
    "Condense",
    "LastN",
    "Layout",
    "Mentioned",
    "Metrics",
    "Persona",
    "PlainHead",
    "Recalled",
    "Recorded",
    "RuntimeOptions",
    "Session",
    "Settings",
    "Setup",
    "SetupOptions",
    "Source",
    "Store",
    "Stored",
    "Template",
    "Terms",
    "TextMatch",
    "Tool",
    "TurnReport",
    "UsualPersona",
    "Utterance",
    "Words",
    "files_mentioned",
    "open_search",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.context.port": "Source",
            "lamina.core.history_window": "LastN",
            "lamina.core.layout": "Layout",
            "lamina.dialects.port": "PlainHead Tool",
            "lamina.fitting.recalls": "RECALL Recalled TextMatch",
            "lamina.sessions.answers": "Recorded",
            "lamina.sessions.attachments": "Attachable Mentioned files_mentioned",
            "lamina.sessions.reports": "Metrics TurnReport",
            "lamina.sessions.search": "open_search",
            "lamina.sessions.session": "Session",
            "lamina.sessions.setup": "RuntimeOptions Setup SetupOptions Template",
            "lamina.sessions.system_sections": "Persona Stored UsualPersona Words",
            "lamina.sessions.turns": "Utterance",
            "lamina.settings": "Settings",
            "lamina.stores.port": "Store",
            "lamina.summaries": "Condense Terms",
        },
    )
