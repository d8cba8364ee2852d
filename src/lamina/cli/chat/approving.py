"""Asks the user before a tool changes something: what the model wants to do, and whether it may.

"always" is for one tool, while the program runs. Whatever else is typed is a no, and the model is told it as
the reason. Where nobody can be asked, the answer is no.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from anyio.lowlevel import checkpoint

from lamina.agent import Action
from lamina.cli.chat.lines import LineSource
from lamina.cli.chat.screen import Screen, describe_call
from lamina.core.values import ToolCall
from lamina.dialects.json_values import decode_arguments

QUESTION = "allow? [y]es, [n]o, [a]lways, or say what to do instead: "
NOBODY = "this needs approval, and nobody is there to give it"
MOST_LINES = 40
"""Lines of a change that are shown."""

_SHORT_ANSWERS = ("y", "yes", "n", "no", "a", "always")


class Approval:
    """Asks once for each call; remembers the tools that may always run. `stop` ends the turn."""

    def __init__(self, lines: LineSource, screen: Screen, stop: Callable[[], None]) -> None:
        self._lines = lines
        self._screen = screen
        self._stop = stop
        self._always: set[str] = set()

    async def __call__(self, call: ToolCall, _: Action) -> bool | str:
        """Ask the user whether a call may run: True, or what the model is told instead.

        `a` allows this tool for the rest of the chat. Any other words are passed on to the model as the
        reason. If nobody can be asked, since the chat reads from a pipe, nothing is allowed.
        """
        if call.name in self._always:
            return True
        if not self._lines.asks:
            return NOBODY
        self._screen.end()
        self._screen.show(f"the model wants to: {describe_call(call)}")
        change = _describe_change(call)
        if change:
            self._screen.show(change)
        answer = await self._ask()
        if answer in ("a", "always"):
            self._always.add(call.name)
        if answer in ("y", "yes", "a", "always"):
            self._screen.wait()
            return True
        if answer in ("", "n", "no"):
            return "the user did not approve it"
        return f"the user said: {answer}"

    async def _ask(self) -> str:
        """The answer of the user, in lower case if it is one of the short ones. Ctrl-C ends the turn."""
        try:
            line = await self._lines.ask(QUESTION)
        except KeyboardInterrupt:
            self._stop()
            await checkpoint()  # the turn ends here
            return ""
        answer = (line or "").strip()
        if answer.lower() in _SHORT_ANSWERS:
            return answer.lower()
        return answer


def _describe_change(call: ToolCall) -> str:
    """What a call would write, as lines with + and -.

    A call that edits has `old` and `new`. One that writes a whole file has `content`, and every line is
    new.
    """
    arguments = decode_arguments(call.arguments)
    old = arguments.get("old", "")
    new = arguments.get("new", arguments.get("content", ""))
    if not isinstance(old, str) or not isinstance(new, str):
        return ""
    changes = difflib.ndiff(old.splitlines(), new.splitlines())
    lines = [line for line in changes if not line.startswith("?")]
    if len(lines) > MOST_LINES:
        left_out = len(lines) - MOST_LINES
        lines = [*lines[:MOST_LINES], f"… {left_out:,} more lines"]
    return "\n".join(lines)
