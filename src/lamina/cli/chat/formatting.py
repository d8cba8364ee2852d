"""Draws one block of an answer with rich, but with code, headings and links in our own way.

Rich puts a margin and a background around code, which a user then copies with it, and centres headings in a
frame. A link is shown as text, since a terminal opens what hides behind one. Only this module imports rich
when it is loaded.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.segment import Segment as StyledText
from rich.syntax import Syntax

THEME = "ansi_dark"
"""Colours of the terminal's own palette, so that code can be read on any background."""

MOST_LINES = 200
"""Lines of a growing block that are drawn."""

MOST_CHARACTERS = 20_000
"""The same in characters, for a model that ends no line."""


class FormattedBlock:
    """One block of Markdown. With `whole=False`, only as many of its last lines as a screen has room for."""

    def __init__(self, text: str, *, after_a_block: bool, whole: bool) -> None:
        self._text = text
        self._after_a_block = after_a_block
        self._whole = whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self._text
        if not self._whole:
            text = _last_lines(text)
        block = _ChatMarkdown(text, hyperlinks=False)
        rendered = console.render_lines(block, options.update(height=None), pad=False)
        lines = _strip_empty_lines([_strip_end(line) for line in rendered])
        if self._after_a_block:
            lines = [[], *lines]
        if not self._whole:
            room = max(console.size.height - 2, 1)
            lines = lines[-room:]
        for line in lines:
            yield from line
            yield StyledText.line()


def _last_lines(text: str) -> str:
    """The end of a long block. It is drawn many times while it grows, and no screen shows more of it.

    A block of code keeps its first line, which says that it is code, and in which language.
    """
    if text.count("\n") < MOST_LINES and len(text) < MOST_CHARACTERS:
        return text
    first = text.split("\n", 1)[0]
    last = "\n".join(text[-MOST_CHARACTERS:].split("\n")[-MOST_LINES:])
    if first.lstrip().startswith(("```", "~~~")):
        return f"{first}\n{last}"
    return last


def _strip_end(line: list[StyledText]) -> list[StyledText]:
    """A line without the spaces that fill it up to the width."""
    stripped = list(line)
    while stripped and not stripped[-1].text.strip():
        stripped.pop()
    if stripped:
        last = stripped[-1]
        stripped[-1] = StyledText(last.text.rstrip(), last.style)
    return stripped


def _strip_empty_lines(lines: list[list[StyledText]]) -> list[list[StyledText]]:
    """The lines without the empty ones around them, which rich adds to some sorts of blocks."""
    filled = [number for number, line in enumerate(lines) if line]
    if not filled:
        return []
    return lines[filled[0] : filled[-1] + 1]


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme=THEME, word_wrap=True, background_color="default")


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold")
        if self.tag in ("h1", "h2"):
            self.text.stylize("underline")
        yield self.text


class _ChatMarkdown(Markdown):
    elements: ClassVar[dict[str, Any]] = {
        **Markdown.elements,
        "fence": _Code,
        "code_block": _Code,
        "heading_open": _Heading,
    }
