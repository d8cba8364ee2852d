"""Context blocks of another system's prompts as segments, for its importers.

    parsed = read_context(text)      parsed.segments      parsed.unparsed

The tags are those of chat applications that keep notes, pages and selections in a prompt. A segment's key is
the path, address or name in its block; a block without one is named by its tag and number. Text in no known
block is kept too, named by its content: nothing gets a random or timed name. What could not be parsed is
counted by tag and place, with a hash in place of its text, so that it can be logged anywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.hashing import digest
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.text.tagged import Opening, TaggedBlock, blocks, pairs_of_tags
from lamina.core.values import Role, Segment, Text


class Tag(msgspec.Struct, frozen=True):
    """What a tag holds: the kind of its segment, and the element or attribute that names it."""

    kind: str
    named_by: str = ""


TAGS: Mapping[str, Tag] = {
    "note_context": Tag("note", "path"),
    "active_note": Tag("note", "path"),
    "embedded_note": Tag("note", "path"),
    "vault_note": Tag("note", "path"),
    "retrieved_document": Tag("note", "path"),
    "file_context": Tag("file", "path"),
    "url_content": Tag("url", "url"),
    "twitter_content": Tag("url", "url"),
    "web_tab_context": Tag("web_tab", "url"),
    "active_web_tab": Tag("web_tab", "url"),
    "youtube_video_context": Tag("video", "url"),
    "video_context": Tag("video", "url"),
    "embedded_pdf": Tag("pdf", "name"),
    "selected_text": Tag("selected_text"),
    "web_selected_text": Tag("web_selected_text"),
    "localSearch": Tag("excerpt"),
    "prior_context": Tag("", "source"),
}

_PRIOR = {"note": "note", "url": "url", "youtube": "video", "video": "video", "pdf": "pdf", "file": "file"}
_OTHER = "context_file"
"""The kind of what has no kind of its own here. It is carried on, as anything that may be needed again."""

_NAMES = {"note": "path", "file": "path", "url": "url", "video": "url", "pdf": "name", _OTHER: "name"}


UNKNOWN = "unknown tag"
UNCLOSED = "never closes"
FAILURES = "failures"
"""Where the meta of unparsed text names the tags that failed in it."""


class TagFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A tag that could not be parsed: why, in which line, and a hash of the text that it stands in."""

    tag: str
    why: str
    line: int
    sample: str


class ParsedContext(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks as segments, the text in no block as segments, and the tags that failed, in order."""

    segments: tuple[Segment, ...] = ()
    unparsed: tuple[Segment, ...] = ()
    failures: tuple[TagFailure, ...] = ()

    @property
    def unclosed(self) -> int:
        """How many blocks never close."""
        return sum(failure.why == UNCLOSED for failure in self.failures)


def read_context(text: str, *, tags: Mapping[str, Tag] = TAGS) -> ParsedContext:
    """What a foreign prompt holds besides the question."""
    found = blocks(text, tuple(tags))
    seen: dict[str, int] = {}
    made = tuple(_segment(block, tags[block.tag], seen) for block in found.blocks)
    line_of = _Lines(text)
    rest: list[Segment] = []
    failures: list[TagFailure] = []
    unclosed = deque(found.unclosed)
    for place, piece in zip(found.places, found.between, strict=True):
        here: list[Opening] = []
        while unclosed and unclosed[0].at < place + len(piece):
            here.append(unclosed.popleft())
        failed = _failures(piece, place, here, tags, line_of)
        rest.append(_unparsed(piece, failed))
        failures += failed
    return ParsedContext(segments=made, unparsed=tuple(rest), failures=tuple(failures))


class _Lines:
    """The line of a place in a text, counted from 1. Places have to rise: each line end is counted once."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._line = text, 0, 1

    def of(self, place: int) -> int:
        self._line += self._text.count("\n", self._at, place)
        self._at = place
        return self._line


def _failures(
    piece: str, place: int, unclosed: Sequence[Opening], tags: Mapping[str, Tag], lines: _Lines
) -> list[TagFailure]:
    """What failed in one piece of text that is in no block; `unclosed` are the openings in it.

    Behind a block that never closes stand its elements, which are no failures of their own.
    """
    failed = [(opening.at, opening.tag, UNCLOSED) for opening in unclosed]
    before = piece[: unclosed[0].at - place] if unclosed else piece
    failed += [
        (place + opening.at, opening.tag, UNKNOWN)
        for opening in pairs_of_tags(before)
        if opening.tag not in tags
    ]
    text_hash = digest(piece)
    return [
        TagFailure(tag=tag, why=why, line=lines.of(at), sample=digest((tag, text_hash))[:16])
        for at, tag, why in sorted(failed)
    ]


def _segment(block: TaggedBlock, tag: Tag, seen: dict[str, int]) -> Segment:
    name = block.attrs.get(tag.named_by, "")
    kind, attrs = tag.kind, block.attrs
    if not kind:
        kind = _PRIOR.get(attrs.get("type", ""), _OTHER)
        attrs = {_NAMES.get(kind, "source"): name} if name else {}
    meta = {"tag": block.tag}
    return Segment(
        role=Role.USER,
        kind=kind,
        parts=(Text(block.content),),
        key=name or _numbered(block.tag, seen),
        attrs=attrs,
        meta=meta,
    )


def _numbered(tag: str, seen: dict[str, int]) -> str:
    seen[tag] = seen.get(tag, 0) + 1
    return tag if seen[tag] == 1 else f"{tag}:{seen[tag]}"


def _unparsed(text: str, failed: Sequence[TagFailure]) -> Segment:
    key = f"unparsed:{digest(text)[:16]}"
    meta: dict[str, Any] = {"tag": ""}
    if failed:
        meta[FAILURES] = [failure.tag for failure in failed]
    return Segment(
        role=Role.USER,
        kind=_OTHER,
        parts=(Text(text.strip(WHITE_SPACE)),),
        key=key,
        attrs={"name": "unparsed"},
        meta=meta,
    )


def failed_tags(segment: Segment) -> tuple[str, ...]:
    """The tags that could not be parsed in a segment that `read_context` made."""
    tags = segment.meta.get(FAILURES)
    return tuple(map(str, tags)) if isinstance(tags, list | tuple) else ()
