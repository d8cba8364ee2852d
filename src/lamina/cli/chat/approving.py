"""Asking before something is changed: what the model wants to do, and whether it may.

"always" is for one tool, while the program runs. Whatever else is typed is a no, and the model is told it as
the reason. Where nobody can be asked, the answer is no.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from typing import Any

from anyio.lowlevel import checkpoint

from lamina.agent import Action
from lamina.cli.chat.lines import LineSource
from lamina.cli.chat.screen import Screen, called
from lamina.core.values import ToolCall

QUESTION = "allow? [y]es, [n]o, [a]lways, or say what to do instead: "
NOBODY = "this needs approval, and nobody is there to give it"
SHOWN = 40
"""Lines of a change that are shown."""


class Approval:
    """Asks once for each call; remembers the tools that may always run. `stop` ends the turn."""

    def __init__(self, lines: LineSource, screen: Screen, stop: Callable[[], None]) -> None:
        self._lines, self._screen, self._stop = lines, screen, stop
        self._always: set[str] = set()

    async def __call__(self, call: ToolCall, _: Action) -> bool | str:
        if call.name in self._always:
            return True
        if not self._lines.asks:
            return NOBODY
        self._screen.end()
        self._screen.show(f"the model wants to: {called(call)}")
        if change := _change(call):
            self._screen.show(change)
        answer = await self._answer()
        if answer in ("a", "always"):
            self._always.add(call.name)
        if answer in ("y", "yes", "a", "always"):
            self._screen.wait()
            return True
        return "the user did not approve it" if answer in ("", "n", "no") else f"the user said: {answer}"

    async def _answer(self) -> str:
        try:
            line = await self._lines.ask(QUESTION)
        except KeyboardInterrupt:
            self._stop()
            await checkpoint()  # the turn ends here
            return ""
        said = (line or "").strip()
        return said.lower() if said.lower() in ("y", "yes", "n", "no", "a", "always") else said


def _change(call: ToolCall) -> str:
    """What a call would write, as lines with + and -."""
    try:
        given: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return ""
    if not isinstance(given, dict):
        return ""
    old, new = given.get("old", ""), given.get("new", given.get("content", ""))
    if not isinstance(old, str) or not isinstance(new, str):
        return ""
    lines = [line for line in difflib.ndiff(old.splitlines(), new.splitlines()) if not line.startswith("?")]
    more = [f"… {len(lines) - SHOWN:,} more lines"] if len(lines) > SHOWN else []
    return "\n".join(lines[:SHOWN] + more)
