"""A command of the chat: its arguments, what it does in words, and the function that does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from lamina.cli.chat.conversation import TerminalChat
from lamina.errors import BadInput

Act = Callable[[TerminalChat, str], Awaitable[None]]


class Command(NamedTuple):
    """A command. It is called with the chat and the rest of the line."""

    takes: str
    does: str
    act: Act


def require(words: str, *, command: str, what: str, hint: str) -> str:
    """The argument of a command. Raises BadInput if there is none."""
    if not words:
        raise BadInput(f"it takes {what}", place=command, hint=hint)
    return words
