"""Shows a chat: the answer as it streams, what tools did, and remarks. Others' words are inert.

On a terminal remarks stand dimmed between the words; elsewhere only the answer goes to standard output.
Nothing is decided here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import textwrap
from typing import Any

from lamina.agent.outcome import ToolRunEvent, TurnEvent
from lamina.cli.chat.answers import AnswerOutput, open_answer
from lamina.cli.output import progress, shorten, tell
from lamina.clients.events import StopEvent, TextEvent, ThinkingEvent, UsageEvent
from lamina.core.text.characters import make_printable
from lamina.core.values import ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.usage import count_noun

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
WIDEST = 110
SHORT = 80
"""Characters of a call's arguments that are shown."""


class Screen:
    """Standard output, as a chat uses it. `live`: somebody reads along on a terminal."""

    def __init__(self, *, live: bool) -> None:
        """`live` is a terminal. It gets styles, unless NO_COLOR or TERM says that it wants none."""
        self.live = live
        self.styled = live and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._answer: AnswerOutput | None = None
        self._waiting = contextlib.ExitStack()
        self._said_thinking = False

    @property
    def width(self) -> int:
        return min(shutil.get_terminal_size().columns, WIDEST)

    def show(self, text: str) -> None:
        """Text of lamina's own, with lines."""
        print(make_printable(text, lines=True), flush=True)

    def formatted(self, text: str) -> None:
        """Markdown that is complete."""
        answer = open_answer(width=self.width, styled=self.styled)
        answer.feed(text)
        answer.end()

    def remark(self, text: str) -> None:
        """Something beside the conversation, on a terminal only.

        The terminal breaks a line that is too long, so that a command in it can be copied.
        """
        if self.live:
            self._end_answer()
            print(self._dim(make_printable(text, lines=True)), flush=True)

    def account(self, text: str) -> None:
        """What a turn took, as a remark that is broken between words."""
        self.remark("\n".join(textwrap.wrap(text, self.width, break_long_words=False)))

    def problem(self, text: str) -> None:
        """Something that went wrong, in one line."""
        self._end_answer()
        line = " ".join(make_printable(text, lines=True).split())
        if not self.live:
            tell(f"lamina: {line}")
            return
        lines = textwrap.wrap(line, self.width - 2, break_long_words=False, break_on_hyphens=False)
        print("! " + "\n  ".join(lines), flush=True)

    def wait(self, reason: str = "waiting for the model") -> None:
        """Something is under way, the model is asked for instance: whoever waits long is told so."""
        self._waiting.close()
        self._said_thinking = False
        if self.live:
            self._waiting.enter_context(progress(f"{reason}; Ctrl-C interrupts"))

    async def hear(self, event: TurnEvent) -> None:
        """Show an event of a turn: words as they come, and one line for each tool that ran."""
        if isinstance(event, StopEvent | UsageEvent):
            return
        self._waiting.close()
        match event:
            case TextEvent():
                self._speak(event.text)
            case ThinkingEvent():
                self._think()
            case ToolRunEvent():
                self.remark(_describe_result(event))
                self.wait()

    def end(self) -> None:
        """The turn is over, however it ended."""
        self._waiting.close()
        self._end_answer()

    def _think(self) -> None:
        if not self._said_thinking:
            self.remark("(thinking)")
        self._said_thinking = True

    def _speak(self, text: str) -> None:
        if self._answer is None:
            text = text.lstrip("\n")
            if not text:
                return
            self._answer = open_answer(width=self.width, styled=self.styled)
        self._answer.feed(text)

    def _end_answer(self) -> None:
        if self._answer is not None:
            self._answer.end()
            self._answer = None

    def _dim(self, text: str) -> str:
        """The text in a weaker colour, set anew on each line."""
        if not self.styled:
            return text
        return "\n".join(f"{DIM}{line}{PLAIN}" for line in text.split("\n"))


def describe_call(call: ToolCall) -> str:
    """A call in one line: its name, and what it is about."""
    text = f"{call.name} {_describe_arguments(call.arguments)}"
    return shorten(" ".join(make_printable(text).split()), SHORT)


def _describe_arguments(arguments: str) -> str:
    """The values without their names; the text as it is, if it is not JSON.

    `{"path": "a.py", "line": 3}` is shown as `a.py 3`.
    """
    try:
        decoded: Any = json.loads(arguments or "{}")
        values = [decoded]
        if isinstance(decoded, dict):
            values = list(decoded.values())
        return " ".join(map(_write_value, values))
    except (ValueError, RecursionError):
        return arguments


def _write_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _describe_result(event: ToolRunEvent) -> str:
    """One line for a tool that ran: how many lines it returned, or what went wrong."""
    parts = event.result.parts
    first = parts[0] if parts else None
    if not isinstance(first, ToolResult):
        return f"→ {describe_call(event.call)} ({_count_lines(text_of(parts))})"
    text = text_of(first.content)
    if first.error:
        return f"→ {describe_call(event.call)}: {make_printable(text)[:200]}"
    return f"→ {describe_call(event.call)} ({_count_lines(text)})"


def _count_lines(text: str) -> str:
    return count_noun(text.count("\n") + 1, "line")
