"""Conversations in a store: load, gather, build, save. Start reading in `session`."""

from __future__ import annotations

from lamina.core.history_window import LastN
from lamina.fitting.recalls import RECALL, Recalled, TextMatch
from lamina.sessions.answers import Recorded
from lamina.sessions.mentioned_attachments import Mentioned, files_mentioned
from lamina.sessions.reports import Metrics, TurnReport
from lamina.sessions.request_builder import RuntimeOptions
from lamina.sessions.session import Session
from lamina.sessions.setup import Setup, SetupOptions
from lamina.sessions.system_sections import Persona, Stored, UsualPersona
from lamina.sessions.turns import Utterance

__all__ = [
    "RECALL",
    "LastN",
    "Mentioned",
    "Metrics",
    "Persona",
    "Recalled",
    "Recorded",
    "RuntimeOptions",
    "Session",
    "Setup",
    "SetupOptions",
    "Stored",
    "TextMatch",
    "TurnReport",
    "UsualPersona",
    "Utterance",
    "files_mentioned",
]
