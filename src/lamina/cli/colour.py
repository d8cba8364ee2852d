"""Colour on a terminal, where it helps to see at once what was saved, lost or refused.

Nothing is coloured where nobody looks at a terminal (a pipe, a file), with `NO_COLOR`, or on a terminal that
calls itself dumb. `FORCE_COLOR` colours all the same. The words say everything without colour, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import IO, Literal

Tone = Literal["good", "bad", "remark", "faint", "strong"]

_CODES: dict[Tone, str] = {"good": "32", "bad": "31", "remark": "33", "faint": "2", "strong": "1"}


def paint(text: str, tone: Tone, stream: IO[str] | None = None) -> str:
    """The text in a tone, if the stream (standard output unless told) shows colours; else the text."""
    if not text or not shows_colour(stream or sys.stdout, os.environ):
        return text
    return f"\x1b[{_CODES[tone]}m{text}\x1b[0m"


def shows_colour(stream: IO[str], environment: Mapping[str, str]) -> bool:
    """Whether what is written to a stream may have colours."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    if not stream.isatty() or environment.get("TERM") == "dumb":
        return False
    return sys.platform != "win32" or _windows_shows_colour(environment)


def _windows_shows_colour(environment: Mapping[str, str]) -> bool:
    """Windows Terminal, ConEmu and terminals with a TERM understand the codes; the old console need not."""
    return any(environment.get(name) for name in ("WT_SESSION", "ANSICON", "TERM"))
