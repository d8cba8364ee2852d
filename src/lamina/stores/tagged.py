"""Context blocks of another system's prompts as segments, for its importers.

    parsed = read_context(text)      parsed.segments      parsed.unparsed

The tags are those of chat applications that keep notes, pages and selections in a prompt. A segment's key is
the path, address or name in its block; a block without one is named by its tag and number. Text in no known
block is kept too, named by its content: nothing gets a random or timed name.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lamina.core.hashing import digest
from lamina.core.values import Role, Segment, Text
from lamina.text.characters import WHITE_SPACE
from lamina.text.tagged import Block, blocks


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


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks as segments, the text in no block as segments, and how many blocks never close."""

    segments: tuple[Segment, ...] = ()
    unparsed: tuple[Segment, ...] = ()
    unclosed: int = 0


def read_context(text: str, *, tags: Mapping[str, Tag] = TAGS) -> Parsed:
    """What a foreign prompt holds besides the question."""
    found = blocks(text, tuple(tags))
    seen: dict[str, int] = {}
    made = tuple(_segment(block, tags[block.tag], seen) for block in found.blocks)
    rest = tuple(_unparsed(piece) for piece in found.between)
    return Parsed(segments=made, unparsed=rest, unclosed=found.unclosed)


def _segment(block: Block, tag: Tag, seen: dict[str, int]) -> Segment:
    name = block.attrs.get(tag.named_by, "")
    kind, attrs = tag.kind, block.attrs
    if not kind:
        kind = _PRIOR.get(attrs.get("type", ""), _OTHER)
        attrs = {_NAMES.get(kind, "source"): name} if name else {}
    meta = {"tag": block.tag}
    return Segment(
        role=Role.USER, kind=kind, parts=(Text(block.content),), key=name or _numbered(block.tag, seen),
        attrs=attrs, meta=meta,
    )  # fmt: skip


def _numbered(tag: str, seen: dict[str, int]) -> str:
    seen[tag] = seen.get(tag, 0) + 1
    return tag if seen[tag] == 1 else f"{tag}:{seen[tag]}"


def _unparsed(text: str) -> Segment:
    key = f"unparsed:{digest(text)[:16]}"
    return Segment(
        role=Role.USER,
        kind=_OTHER,
        parts=(Text(text.strip(WHITE_SPACE)),),
        key=key,
        attrs={"name": "unparsed"},
        meta={"tag": ""},
    )
