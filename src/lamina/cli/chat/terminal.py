"""The terminal of a chat: a line of the user, a question before a change, the answer as it streams.

Others' words are inert here. Elsewhere than on a terminal only answers go to standard output, and nobody can
be asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import signal
import sys
from collections.abc import Awaitable
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from lamina.agent import Action
from lamina.agent.outcome import ToolRunEvent, TurnEvent
from lamina.cli.output import paint, progress, shorten, tell
from lamina.clients.events import TextEvent, ThinkingEvent
from lamina.core.text.characters import make_printable
from lamina.core.values import ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.json_values import decode_arguments
from lamina.dialects.usage import count_noun

QUESTION = "allow? [y]es, [n]o, [a]lways, or say what to do instead: "
NOBODY = "this needs approval, and nobody is there to give it"
MOST_LINES = 40
"""Lines of a change that are shown."""

SHORT = 80
"""Characters of a call that are shown."""


class Terminal:
    """Standard input and output, as a chat uses them. `live`: somebody is there to read and answer."""

    def __init__(self) -> None:
        self.live = sys.stdin.isatty() and sys.stdout.isatty()
        self._always: set[str] = set()
        self._waiting = contextlib.ExitStack()
        self._is_answering = False
        self._turn = anyio.CancelScope()
        if self.live:
            with contextlib.suppress(ImportError):  # Windows has lines without history
                import readline  # noqa: F401, PLC0415 - input() uses it once it is imported

    def read(self, prompt: str) -> str | None:
        """A line; "" if Ctrl-C took it back, None at the end of the input.

        Nothing else runs in a chat while it waits for a line, so the event loop may wait, too.
        """
        if not self.live:
            line = sys.stdin.readline()
            if not line:
                return None
            return line.rstrip("\r\n")
        try:
            return _ask(prompt)
        except EOFError:
            return None
        except KeyboardInterrupt:
            print()
            return ""

    async def approve(self, call: ToolCall, _: Action) -> bool | str:
        """Ask whether a call that changes something may run: True, or what the model is told instead.

        `a` allows this tool for the rest of the chat. Any other words are passed on to the model.
        """
        if call.name in self._always:
            return True
        if not self.live:
            return NOBODY
        self.end()
        self.show(f"the model wants to: {describe_call(call)}")
        self.show(_describe_change(call))
        _forget_typed_lines()
        try:
            answer = _ask(QUESTION).strip()
        except EOFError:
            answer = ""
        except KeyboardInterrupt:
            print()
            self._turn.cancel()
            await checkpoint()  # the turn ends here
            answer = ""
        match answer.lower():
            case "" | "n" | "no":
                return "the user did not approve it"
            case "a" | "always":
                self._always.add(call.name)
            case "y" | "yes":
                pass
            case _:
                return f"the user said: {answer}"
        return True

    async def run(self, action: Awaitable[None]) -> bool:
        """Run what Ctrl-C interrupts; whether it came to its end."""
        loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            self._turn = scope
            with contextlib.suppress(NotImplementedError):  # on Windows Ctrl-C ends the chat
                loop.add_signal_handler(signal.SIGINT, scope.cancel)
            try:
                await action
            finally:
                with contextlib.suppress(NotImplementedError):
                    loop.remove_signal_handler(signal.SIGINT)
        return not scope.cancelled_caught

    def show(self, text: str) -> None:
        """Text of lamina's own, with lines."""
        if text:
            print(make_printable(text, lines=True), flush=True)

    def remark(self, text: str) -> None:
        """Something beside the conversation, on a terminal only."""
        if self.live:
            self.end()
            print(
                "\n".join(paint(line, "faint") for line in make_printable(text, lines=True).split("\n")),
                flush=True,
            )

    def problem(self, text: str) -> None:
        """Something that went wrong, in one line."""
        self.end()
        line = " ".join(make_printable(text, lines=True).split())
        if self.live:
            print(f"! {line}", flush=True)
        else:
            tell(f"lamina: {line}")

    def wait(self) -> None:
        """The model is asked: whoever waits long is told so."""
        self._waiting.close()
        if self.live:
            self._waiting.enter_context(progress("waiting for the model; Ctrl-C interrupts"))

    async def hear(self, event: TurnEvent) -> None:
        """Show an event of a turn: words as they come, and one line for each tool that ran."""
        match event:
            case TextEvent():
                self._speak(event.text)
            case ThinkingEvent():
                self._waiting.close()
            case ToolRunEvent():
                self.remark(_describe_result(event))
                self.wait()

    def end(self) -> None:
        """End the line of an answer, if one is open."""
        self._waiting.close()
        if self._is_answering:
            print(flush=True)
        self._is_answering = False

    def _speak(self, text: str) -> None:
        self._waiting.close()
        if not self._is_answering:
            text = text.lstrip("\n")
        if text:
            self._is_answering = True
            print(make_printable(text, lines=True), end="", flush=True)


def _ask(question: str) -> str:
    """A line of the user's. Ctrl-C raises KeyboardInterrupt here, whatever it does in a turn."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(question)
    finally:
        signal.signal(signal.SIGINT, before)


def _forget_typed_lines() -> None:
    """Drop what was typed before a question was asked: it is no answer to it."""
    with contextlib.suppress(ImportError):  # Windows
        import termios  # noqa: PLC0415 - not on every system

        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def describe_call(call: ToolCall) -> str:
    """A call in one line: `{"path": "a.py", "line": 3}` of the tool read is shown as `read a.py 3`."""
    try:
        arguments: Any = json.loads(call.arguments or "{}")
        values = [arguments]
        if isinstance(arguments, dict):
            values = list(arguments.values())
        words = " ".join(map(_write_value, values))
    except (ValueError, RecursionError):
        words = call.arguments
    return shorten(" ".join(make_printable(f"{call.name} {words}").split()), SHORT)


def _write_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _describe_change(call: ToolCall) -> str:
    """What a call would write, as lines with + and -. A call that writes a whole file has only `content`."""
    arguments = decode_arguments(call.arguments)
    old = arguments.get("old", "")
    new = arguments.get("new", arguments.get("content", ""))
    if not isinstance(old, str) or not isinstance(new, str):
        return ""
    changes = difflib.ndiff(old.splitlines(), new.splitlines())
    lines = [line for line in changes if not line.startswith("?")]
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"… {len(lines) - MOST_LINES:,} more lines"]
    return "\n".join(lines)


def _describe_result(event: ToolRunEvent) -> str:
    """One line for a tool that ran: how many lines it returned, or what went wrong."""
    text = text_of(event.result.parts)
    for part in event.result.parts:
        if isinstance(part, ToolResult):
            text = text_of(part.content)
            if part.error:
                return f"→ {describe_call(event.call)}: {make_printable(text)[:200]}"
    lines = count_noun(text.count("\n") + 1, "line")
    return f"→ {describe_call(event.call)} ({lines})"
