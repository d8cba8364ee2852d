"""Conversations in a store: load, gather, build, save. Start reading in `session`."""

from __future__ import annotations

from lamina.context.port import Source
from lamina.core.history_window import LastN
from lamina.core.layout import Layout
from lamina.dialects.port import PlainHead, Tool
from lamina.fitting.recalls import RECALL, Recalled, TextMatch
from lamina.sessions.answers import Recorded
from lamina.sessions.attachments import Attachable
from lamina.sessions.mentioned_attachments import Mentioned, files_mentioned
from lamina.sessions.reports import Metrics, TurnReport
from lamina.sessions.request_builder import RuntimeOptions
from lamina.sessions.session import Session
from lamina.sessions.setup import Setup, SetupOptions
from lamina.sessions.stored_options import Template
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
]
