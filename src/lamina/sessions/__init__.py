"""Conversations in a store: load, gather, build, save. Start reading in `session`."""

from __future__ import annotations

from lamina.context.port import Source
from lamina.core.history_window import LastN
from lamina.dialects.port import PlainHead
from lamina.fitting.recalls import Recalled, TextMatch
from lamina.sessions.answers import Recorded
from lamina.sessions.attachments import Attachable
from lamina.sessions.reports import Metrics, TurnReport
from lamina.sessions.session import Session
from lamina.sessions.setup import RuntimeOptions, Setup, SetupOptions, Template
from lamina.sessions.system_sections import Persona, Stored, UsualPersona, Words
from lamina.sessions.turns import Utterance
from lamina.settings import Settings
from lamina.stores.port import Store
from lamina.summaries import Condense

__all__ = [
    "Attachable",
    "Condense",
    "LastN",
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
    "TextMatch",
    "TurnReport",
    "UsualPersona",
    "Utterance",
    "Words",
]
