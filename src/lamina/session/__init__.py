"""Conversations that last: load, gather, build, save. Start reading in `shell`."""

from __future__ import annotations

from lamina.core.history_window import LastN
from lamina.session.answers import Recorded
from lamina.session.mentioned import Mentioned, files_mentioned
from lamina.session.persona import Persona, Stored, UsualPersona
from lamina.session.recalling import Match, Recalled
from lamina.session.reports import Metrics, TurnReport
from lamina.session.setup import RECALL, Setup
from lamina.session.shell import Session
from lamina.session.turns import Said

__all__ = [
    "RECALL",
    "LastN",
    "Match",
    "Mentioned",
    "Metrics",
    "Persona",
    "Recalled",
    "Recorded",
    "Said",
    "Session",
    "Setup",
    "Stored",
    "TurnReport",
    "UsualPersona",
    "files_mentioned",
]
