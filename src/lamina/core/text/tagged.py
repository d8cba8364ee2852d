"""Context tags in a text that another system wrote, found again: tag, attributes, elements, content.

For importers of foreign formats only; what lamina itself writes is never read back. The content of such a
text is not escaped, so this reads it as its writers meant it: a block ends where its content element and
the block close together, and whatever stands inside a block is content. One pass, linear in the text. It
knows no kinds and no segments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, is_blank

# In each pattern, what follows a repetition has no character in common with it: going back fails at once.
_GAP = f"[{WHITE_SPACE}]*"
_ATTRIBUTE = re.compile(
    rf"(?<![{WHITE_SPACE}])[{WHITE_SPACE}]+([A-Za-z0-9_:-]+){_GAP}={_GAP}"
    r"""(?:"([^"]*)"|'([^']*)')"""
)
"""An attribute. It begins where white space does: from the middle of a long run nothing is tried again."""
_ELEMENT = re.compile(rf"{_GAP}<([A-Za-z0-9_-]+)>([^<]*)</\1>")
_CONTENT = re.compile(rf"{_GAP}<content>\n?")
_ANY_OPENING = re.compile(rf"<([A-Za-z][A-Za-z0-9_-]*)(?=[{WHITE_SPACE}>])")
_ANY_CLOSING = re.compile(r"</([A-Za-z][A-Za-z0-9_-]*)>")
_ENTITY = re.compile(r"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7}));")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


class TaggedBlock(NamedTuple):
    """One block: its tag, what it says of itself, its content, and the text that it is."""

    tag: str
    attrs: dict[str, str]
    content: str
    text: str


class Opening(NamedTuple):
    """A tag that opens, and where it stands in the text."""

    tag: str
    at: int


class TaggedBlocks(NamedTuple):
    """The blocks of a text in order, and what stands between them with the place of each.

    `unclosed` are the openings of these tags that never close.
    """

    blocks: tuple[TaggedBlock, ...]
    between: tuple[str, ...]
    places: tuple[int, ...]
    unclosed: tuple[Opening, ...]


def blocks(text: str, tags: Sequence[str]) -> TaggedBlocks:
    """The blocks of these tags, none inside another. An opening tag that never closes is plain text."""
    found: list[TaggedBlock] = []
    between: list[tuple[int, str]] = []
    unclosed: list[Opening] = []
    after = 0
    closings = _Closings(text)
    for opening in _openings(text, tags):
        if opening.start() < after:
            continue
        block = _block(text, opening, closings)
        if block is None:
            unclosed.append(Opening(opening[1], opening.start()))
            continue
        between.append((after, text[after : opening.start()]))
        found.append(block)
        after = opening.start() + len(block.text)
    between.append((after, text[after:]))
    said = [(place, piece) for place, piece in between if not is_blank(piece)]
    return TaggedBlocks(
        blocks=tuple(found),
        between=tuple(piece for _, piece in said),
        places=tuple(place for place, _ in said),
        unclosed=tuple(unclosed),
    )


def pairs_of_tags(text: str) -> tuple[Opening, ...]:
    """Where some tag opens that closes further on in the text: the first opening of each such name."""
    last_closing = {match[1]: match.start() for match in _ANY_CLOSING.finditer(text)}
    first: dict[str, int] = {}
    for match in _ANY_OPENING.finditer(text):
        tag = match[1]
        if tag not in first and match.start() < last_closing.get(tag, -1):
            first[tag] = match.start()
    return tuple(Opening(tag, at) for tag, at in first.items())


def unwrapped(text: str, tag: str) -> str:
    """What stands in the last pair of this tag: what comes before it may speak of the tag. Else the text."""
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, max(end, 0))
    return text if end < 0 or start < 0 else text[start + len(tag) + 2 : end].strip("\n")


def unescape(value: str) -> str:
    """An attribute or element as it was before it was escaped."""
    return _ENTITY.sub(_character, value) if "&" in value else value


def _character(entity: re.Match[str]) -> str:
    if entity[1]:
        return _ENTITIES[entity[1]]
    code = int(entity[2])
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else entity[0]


def _openings(text: str, tags: Sequence[str]) -> Iterator[re.Match[str]]:
    names = "|".join(re.escape(tag) for tag in sorted(tags, key=len, reverse=True))
    return re.finditer(rf"<({names})(?=[{WHITE_SPACE}>])([^<>]*)>", text) if names else iter(())


class _Closings:
    """Where tags close, by position; what was not found once is not looked for again."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.none_from: dict[str, int] = {}

    def after(self, closing: str, start: int) -> re.Match[str] | None:
        if start >= self.none_from.get(closing, start + 1):
            return None
        match = re.compile(closing).search(self.text, start)
        if match is None:
            self.none_from[closing] = start
        return match


def _block(text: str, opening: re.Match[str], closings: _Closings) -> TaggedBlock | None:
    tag = opening[1]
    attrs = {m[1]: unescape(m[2] if m[2] is not None else m[3]) for m in _ATTRIBUTE.finditer(opening[2])}
    at = opening.end()
    while (element := _ELEMENT.match(text, at)) and element[1] != "content":
        attrs[element[1]] = unescape(element[2])
        at = element.end()
    end = None
    if content := _CONTENT.match(text, at):
        at = content.end()
        end = closings.after(rf"\n?</content>{_GAP}</{re.escape(tag)}>", at)
    end = end or closings.after(rf"\n?</{re.escape(tag)}>", at)
    if end is None:
        return None
    body = text[at : end.start()]
    return TaggedBlock(
        tag, attrs, body if content else body.removeprefix("\n"), text[opening.start() : end.end()]
    )
