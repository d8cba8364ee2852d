"""Prints an answer as it arrives: as Markdown by rich, or plain if rich is not installed or not wanted.

A formatted answer is printed block by block, a block being a paragraph, a list or a fence of code. The block
that is still growing is drawn again with each piece, by `rich.live`; what is complete is printed once, and
scrolls away as any text. So an answer of any length costs no more at its end than at its beginning.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from lamina.core.text.characters import make_printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

SECONDS_BETWEEN_DRAWINGS = 0.08
"""The growing block is drawn at most so often: drawing takes longer than a model needs for a word."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
"""The line that opens or closes a block of code."""


class AnswerOutput(Protocol):
    """Where the words of one answer go."""

    def feed(self, text: str) -> None: ...
    def end(self) -> None: ...


def open_answer(*, width: int, styled: bool) -> AnswerOutput:
    """The output for one answer. Without rich, or without style, the words are printed as they come."""
    if not styled or importlib.util.find_spec("rich") is None:
        return PlainAnswer()
    from rich.console import Console  # noqa: PLC0415 - an extra, and slow to import

    return FormattedAnswer(Console(width=width, highlight=False))


class PlainAnswer:
    """The words as they come. Only what a terminal would obey is taken out."""

    def feed(self, text: str) -> None:
        sys.stdout.write(make_printable(text, lines=True))
        sys.stdout.flush()

    def end(self) -> None:
        print(flush=True)


class FormattedAnswer:
    """Markdown, block by block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._growing = ""
        self._printed_a_block = False
        self._live: Live | None = None
        self._drawn_at = 0.0

    def feed(self, text: str) -> None:
        self._growing += make_printable(text, lines=True)
        *complete_blocks, self._growing = split_blocks(self._growing)
        for block in complete_blocks:
            self._print_block(block)
        self._draw_growing()

    def end(self) -> None:
        self._print_block(self._growing)
        self._growing = ""

    def _print_block(self, block: str) -> None:
        """Print a complete block, in place of what was drawn of it while it grew."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if not block.strip():
            return
        self._console.print(self._block(block), end="")
        self._printed_a_block = True

    def _draw_growing(self) -> None:
        if not self._growing.strip():
            return
        now = time.monotonic()
        if now - self._drawn_at < SECONDS_BETWEEN_DRAWINGS:
            return
        self._drawn_at = now
        if self._live is None:
            self._live = self._start_live()
        self._live.update(self._block(self._growing, whole=False), refresh=True)

    def _block(self, text: str, *, whole: bool = True) -> RenderableType:
        from lamina.cli.chat.formatting import FormattedBlock  # noqa: PLC0415 - needs an extra

        return FormattedBlock(text, after_a_block=self._printed_a_block, whole=whole)

    def _start_live(self) -> Live:
        from rich.live import Live  # noqa: PLC0415 - an extra

        live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start()
        # Live hides the cursor, and only `stop` would show it again: a chat that is killed would leave the
        # terminal without one.
        self._console.show_cursor(show=True)
        return live


def split_blocks(text: str) -> Iterator[str]:
    """The blocks of a Markdown text, in order; all but the last are complete.

    Empty lines end a block, except in a fence of code. A line that is indented after them goes on with the
    block, since it belongs to an item of a list.
    """
    block: list[str] = []
    fence = ""
    was_empty = False
    for line in text.split("\n"):
        begins_block = bool(line) and not line[0].isspace()
        if was_empty and begins_block and not fence and any(block):
            yield "\n".join(block)
            block = []
        block.append(line)
        fence = _toggle_fence(fence, line)
        was_empty = not line.strip()
    yield "\n".join(block)


def _toggle_fence(open_fence: str, line: str) -> str:
    """The fence that is open after a line. Only a longer or equal fence of its own sort closes it."""
    match = _FENCE.match(line)
    if match is None:
        return open_fence
    fence = match[1]
    if not open_fence:
        return fence
    is_closing = fence[0] == open_fence[0] and len(fence) >= len(open_fence)
    if is_closing:
        return ""
    return open_fence
