"""Reads the context blocks of another system's prompts as segments, for its importers.

    parsed = read_context(text)      parsed.segments      parsed.unparsed

The tags are those of chat applications that put notes, pages and selections into a prompt. A segment's key is
the path, address or name in its block; a block without one is named by its tag and number. Text outside of
these blocks becomes a segment too, named by its content: no name is random or depends on the time. Failures
to parse are reported by tag and place, with a hash instead of the text, so that they can be logged anywhere.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.hashing import digest
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.text.tagged import Opening, TaggedBlock, find_blocks, find_tag_pairs
from lamina.core.values import Role, Segment, Text

__all__ = ["ParsedContext", "Tag", "TagFailure", "failed_tags", "read_context"]


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

_PRIOR_KINDS = {
    "note": "note",
    "url": "url",
    "youtube": "video",
    "video": "video",
    "pdf": "pdf",
    "file": "file",
}
_OTHER = "context_file"
"""The kind of all other context. It is carried on, like anything that may be needed again."""

_NAME_ATTRS = {"note": "path", "file": "path", "url": "url", "video": "url", "pdf": "name", _OTHER: "name"}


UNKNOWN = "unknown tag"
UNCLOSED = "never closes"
FAILURES = "failures"
"""In the meta of unparsed text: the tags in it that could not be parsed."""


class TagFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A tag that could not be parsed: why, in which line, and a hash of the text around it."""

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
    """Read what a foreign prompt holds besides the question.

    `<note_context>…</note_context>` is a block. What stands between blocks comes back as unparsed text.
    """
    tagged = find_blocks(text, tuple(tags))
    counts: Counter[str] = Counter()
    segments = [_segment_of(block, tags[block.tag], counts) for block in tagged.blocks]
    line_counter = _LineCounter(text)
    unparsed: list[Segment] = []
    failures: list[TagFailure] = []
    unclosed = deque(tagged.unclosed)
    for place, piece in zip(tagged.places, tagged.between, strict=True):
        unclosed_here: list[Opening] = []
        while unclosed and unclosed[0].at < place + len(piece):
            unclosed_here.append(unclosed.popleft())
        failures_here = _find_failures(piece, place, unclosed_here, tags, line_counter)
        unparsed.append(_unparsed_segment(piece, failures_here))
        failures += failures_here
    return ParsedContext(segments=tuple(segments), unparsed=tuple(unparsed), failures=tuple(failures))


def failed_tags(segment: Segment) -> tuple[str, ...]:
    """The tags that could not be parsed in a segment that `read_context` returned."""
    tags = segment.meta.get(FAILURES)
    if not isinstance(tags, list | tuple):
        return ()
    return tuple(map(str, tags))


class _LineCounter:
    """The line of a place in a text, counted from 1. Places have to rise: each line end is counted once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._line = 1

    def line_of(self, place: int) -> int:
        self._line += self._text.count("\n", self._place, place)
        self._place = place
        return self._line


def _find_failures(
    piece: str,
    place: int,
    unclosed: Sequence[Opening],
    tags: Mapping[str, Tag],
    line_counter: _LineCounter,
) -> list[TagFailure]:
    """The failures in one piece of text outside of all blocks; `unclosed` are the openings in it."""
    reasons = [(opening.at, opening.tag, UNCLOSED) for opening in unclosed]
    # elements after an opening that never closes belong to its block, and are no failures of their own
    text_before = piece
    if unclosed:
        text_before = piece[: unclosed[0].at - place]
    unknown = [opening for opening in find_tag_pairs(text_before) if opening.tag not in tags]
    reasons += [(place + opening.at, opening.tag, UNKNOWN) for opening in unknown]
    text_hash = digest(piece)
    failures: list[TagFailure] = []
    for at, tag, why in sorted(reasons):
        sample = digest((tag, text_hash))[:16]
        failures.append(TagFailure(tag=tag, why=why, line=line_counter.line_of(at), sample=sample))
    return failures


def _segment_of(block: TaggedBlock, tag: Tag, counts: Counter[str]) -> Segment:
    """A block as a segment of the kind that its tag stands for.

    `<prior_context source="a.md" type="note">` is a note of the name `a.md`.
    """
    name = block.attrs.get(tag.named_by, "")
    kind = tag.kind
    attrs = block.attrs
    if not kind:  # `prior_context` says its kind itself
        kind = _PRIOR_KINDS.get(attrs.get("type", ""), _OTHER)
        attrs = {}
        if name:
            attrs[_NAME_ATTRS.get(kind, "source")] = name
    return Segment(
        role=Role.USER,
        kind=kind,
        parts=(Text(block.content),),
        key=name or _numbered_tag(block.tag, counts),
        attrs=attrs,
        meta={"tag": block.tag},
    )


def _numbered_tag(tag: str, counts: Counter[str]) -> str:
    """The name of a block without one: `selected_text`, then `selected_text:2`."""
    counts[tag] += 1
    if counts[tag] == 1:
        return tag
    return f"{tag}:{counts[tag]}"


def _unparsed_segment(text: str, failures: Sequence[TagFailure]) -> Segment:
    """Text outside of any block, with the tags in it that could not be read."""
    meta: dict[str, Any] = {"tag": ""}
    if failures:
        meta[FAILURES] = [failure.tag for failure in failures]
    return Segment(
        role=Role.USER,
        kind=_OTHER,
        parts=(Text(text.strip(WHITE_SPACE)),),
        key=f"unparsed:{digest(text)[:16]}",
        attrs={"name": "unparsed"},
        meta=meta,
    )
