"""What a chat shows: the answer as it streams, what tools did, remarks. The words of others are inert.

On a terminal remarks stand dimmed between the words; elsewhere only the answer goes to standard output. It
decides nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from typing import Any

from lamina.agent.outcome import Heard, Ran
from lamina.cli.chat.markdown import DIM, PLAIN, Markdown, inert
from lamina.cli.output import progress, tell
from lamina.clients.events import CallUsage, Spoke, Stopped, Thought
from lamina.core.values import ToolCall, ToolResult
from lamina.core.wording import text_of

WIDEST = 110
SHORT = 80
"""Characters of a call's arguments that are shown."""


class Screen:
    """Standard output, as a chat uses it. `live`: somebody reads along on a terminal."""

    def __init__(self, *, live: bool) -> None:
        self.live = live
        self.styled = live and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._markdown: Markdown | None = None
        self._waiting = contextlib.ExitStack()
        self._thought = False

    @property
    def width(self) -> int:
        return min(shutil.get_terminal_size().columns, WIDEST)

    def show(self, text: str) -> None:
        """Text of lamina's own, with lines."""
        print(inert(text), flush=True)

    def formatted(self, text: str) -> None:
        """Markdown that is there already."""
        made = Markdown(width=self.width, styled=self.styled)
        print(made.feed(text) + made.end(), flush=True)

    def remark(self, text: str) -> None:
        """Something beside the conversation, on a terminal only."""
        if self.live:
            self._ended_words()
            print(self._dim(inert(text)), flush=True)

    def problem(self, text: str) -> None:
        """Something that went wrong, in one line."""
        self._ended_words()
        line = " ".join(inert(text).split())
        if self.live:
            print(f"! {line}", flush=True)
        else:
            tell(f"lamina: {line}")

    def wait(self) -> None:
        """The model is asked: whoever waits long is told so."""
        self._waiting.close()
        self._thought = False
        if self.live:
            self._waiting.enter_context(progress("waiting for the model; Ctrl-C interrupts"))

    async def hear(self, event: Heard) -> None:
        if isinstance(event, Stopped | CallUsage):
            return
        self._waiting.close()
        if isinstance(event, Spoke):
            self._speak(event.text)
        elif isinstance(event, Thought):
            if not self._thought:
                self.remark("(thinking)")
            self._thought = True
        elif isinstance(event, Ran):
            self.remark(_ran(event))
            self.wait()

    def end(self) -> None:
        """The turn is over, however it ended."""
        self._waiting.close()
        self._ended_words()

    def _speak(self, text: str) -> None:
        if self._markdown is None:
            self._markdown = Markdown(width=self.width, styled=self.styled)
            text = text.lstrip("\n")
        sys.stdout.write(self._markdown.feed(text))
        sys.stdout.flush()

    def _ended_words(self) -> None:
        if self._markdown is not None:
            print(self._markdown.end(), flush=True)
            self._markdown = None

    def _dim(self, text: str) -> str:
        return "\n".join(f"{DIM}{line}{PLAIN}" for line in text.split("\n")) if self.styled else text


def called(call: ToolCall) -> str:
    """A call in one line: its name, and what it is about."""
    try:
        given: Any = json.loads(call.arguments or "{}")
        values = given.values() if isinstance(given, dict) else [given]
        shown = " ".join(value if isinstance(value, str) else json.dumps(value) for value in values)
    except (ValueError, RecursionError):
        shown = call.arguments
    line = " ".join(inert(f"{call.name} {shown}", lines=False).split())
    return line if len(line) <= SHORT else f"{line[: SHORT - 1]}…"


def _ran(event: Ran) -> str:
    part = event.result.parts[0] if event.result.parts else None
    text = text_of(part.content if isinstance(part, ToolResult) else event.result.parts)
    if isinstance(part, ToolResult) and part.error:
        return f"→ {called(event.call)}: {inert(text, lines=False)[:200]}"
    count = text.count("\n") + 1
    return f"→ {called(event.call)} ({count:,} line{'s' * (count != 1)})"
