"""Reads the context blocks of another system's prompts as segments, for its importers.

    parsed = read_context(text)      parsed.segments      parsed.unparsed

The tags are those of chat applications that put notes, pages and selections into a prompt. A segment's key is
the path, address or name in its block; a block without one is named by its tag and number. Text outside of
these blocks becomes a segment too, named by its content: no name is random or depends on the time. Failures
to parse are reported by tag and place, with a hash instead of the text, so that they can be logged anywhere.

The content of such a text is not escaped, so it is read as its writers meant it: a block ends where its
content element and the block close together, and whatever is inside a block is content. One pass, linear in
the text. lamina never reads back what it writes itself.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from lamina import Role, Segment
from lamina.core import Text

__all__ = ["ParsedContext", "Tag", "TagFailure", "read_context"]

# In each pattern, what follows a repetition has no character in common with it. So a pattern that does not
# match fails at once, and none takes quadratic time.
_GAP = r"\s*"
# ` path="a.py"` and ` path = 'a.py'`. An attribute begins where white space does, so that nothing is tried
# again from the middle of a long run of spaces.
_ATTRIBUTE = re.compile(
    rf"(?<!\s)\s+([A-Za-z0-9_:-]+){_GAP}={_GAP}"
    r"""(?:"([^"]*)"|'([^']*)')"""
)
_ELEMENT = re.compile(rf"{_GAP}<([A-Za-z0-9_-]+)>([^<]*)</\1>")  # `<title>Notes</title>`
_CONTENT = re.compile(rf"{_GAP}<content>\n?")
_ANY_OPENING = re.compile(r"<([A-Za-z][A-Za-z0-9_-]*)(?=[\s>])")
_ANY_CLOSING = re.compile(r"</([A-Za-z][A-Za-z0-9_-]*)>")
_ENTITY = re.compile(r"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7}));")  # `&amp;` and `&#39;`
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_FIRST_SURROGATE, _AFTER_SURROGATES, _AFTER_LAST_CODE = 0xD800, 0xE000, 0x110000


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
"""In the meta of unparsed text: the tags in it that could not be parsed. A session's report counts them."""


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


def digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
        sample = digest(f"{tag} {text_hash}")[:16]
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
        parts=(Text(text.strip()),),
        key=f"unparsed:{digest(text)[:16]}",
        attrs={"name": "unparsed"},
        meta=meta,
    )


class TaggedBlock(NamedTuple):
    """One block: its tag, its attributes and elements, its content, and the whole text that it is."""

    tag: str
    attrs: dict[str, str]
    content: str
    text: str


class Opening(NamedTuple):
    """A tag that opens, and at which place of the text."""

    tag: str
    at: int


class TaggedBlocks(NamedTuple):
    """The blocks of a text in order, and what is between them with the place of each.

    `unclosed` are the openings of these tags that never close.
    """

    blocks: tuple[TaggedBlock, ...]
    between: tuple[str, ...]
    places: tuple[int, ...]
    unclosed: tuple[Opening, ...]


def find_blocks(text: str, tags: Sequence[str]) -> TaggedBlocks:
    """The blocks of these tags, none inside another. An opening tag that never closes is plain text."""
    found_blocks: list[TaggedBlock] = []
    between: list[str] = []
    places: list[int] = []
    unclosed: list[Opening] = []

    def add_between(start: int, end: int) -> None:
        piece = text[start:end]
        if piece.strip():
            between.append(piece)
            places.append(start)

    after_block = 0
    closings = _Closings(text)
    for opening in _find_openings(text, tags):
        if opening.start() < after_block:
            continue
        block = _read_block(text, opening, closings)
        if block is None:
            unclosed.append(Opening(opening[1], opening.start()))
            continue
        add_between(after_block, opening.start())
        found_blocks.append(block)
        after_block = opening.start() + len(block.text)
    add_between(after_block, len(text))
    return TaggedBlocks(
        blocks=tuple(found_blocks),
        between=tuple(between),
        places=tuple(places),
        unclosed=tuple(unclosed),
    )


def find_tag_pairs(text: str) -> tuple[Opening, ...]:
    """The first opening of each tag that closes further on in the text.

    An importer can name those that it does not know, and does not read as blocks.
    """
    last_closing = {match[1]: match.start() for match in _ANY_CLOSING.finditer(text)}
    first_opening: dict[str, int] = {}
    for match in _ANY_OPENING.finditer(text):
        tag = match[1]
        if tag not in first_opening and match.start() < last_closing.get(tag, -1):
            first_opening[tag] = match.start()
    return tuple(Opening(tag, place) for tag, place in first_opening.items())


def unwrap_tag(text: str, tag: str) -> str:
    """What is in the last pair of this tag, else the text itself. The text before may talk about the tag."""
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, max(end, 0))
    if end < 0 or start < 0:
        return text
    content_start = start + len(f"<{tag}>")
    return text[content_start:end].strip("\n")


def unescape(value: str) -> str:
    """An attribute or element as it was before it was escaped."""
    if "&" not in value:
        return value
    return _ENTITY.sub(_decode_entity, value)


def _decode_entity(entity: re.Match[str]) -> str:
    """What an entity stands for. One that names no character, such as `&#55296;`, stays as it is."""
    name, number = entity[1], entity[2]
    if name:
        return _ENTITIES[name]
    code = int(number)
    is_surrogate = _FIRST_SURROGATE <= code < _AFTER_SURROGATES
    if is_surrogate or code >= _AFTER_LAST_CODE:
        return entity[0]
    return chr(code)


def _find_openings(text: str, tags: Sequence[str]) -> Iterator[re.Match[str]]:
    """Every opening of these tags; group 1 is the tag, group 2 its attributes.

    The longest names are tried first, so that `note_context` is not read as `note`.
    """
    longest_first = sorted(tags, key=len, reverse=True)
    names = "|".join(re.escape(tag) for tag in longest_first)
    if not names:
        return iter(())
    return re.finditer(rf"<({names})(?=[\s>])([^<>]*)>", text)


class _Closings:
    """Finds where tags close. It remembers from where on there is none, so that it never searches twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.none_from: dict[str, int] = {}

    def find_after(self, closing: str, start: int) -> re.Match[str] | None:
        """The first match of the pattern `closing` from `start` on; None if there is none.

        Without the memory, a text of many openings and no closing would take quadratic time.
        """
        if closing in self.none_from and start >= self.none_from[closing]:
            return None
        match = re.compile(closing).search(self.text, start)
        if match is None:
            self.none_from[closing] = start
        return match


def _read_block(text: str, opening: re.Match[str], closings: _Closings) -> TaggedBlock | None:
    """The block that begins with `opening`; None if it never closes."""
    tag = opening[1]
    attrs = _read_attributes(opening[2])
    position = _read_elements(text, opening.end(), attrs)
    closing_tag = rf"</{re.escape(tag)}>"
    end = None
    content = _CONTENT.match(text, position)
    if content:
        position = content.end()
        end = closings.find_after(rf"\n?</content>{_GAP}{closing_tag}", position)
    if end is None:
        end = closings.find_after(rf"\n?{closing_tag}", position)
    if end is None:
        return None
    body = text[position : end.start()]
    if not content:
        body = body.removeprefix("\n")
    return TaggedBlock(tag, attrs, body, text[opening.start() : end.end()])


def _read_attributes(text: str) -> dict[str, str]:
    """The attributes of an opening tag by their names, without their quotes and entities."""
    attrs: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text):
        name, in_double_quotes, in_single_quotes = match.groups()
        value = in_single_quotes if in_double_quotes is None else in_double_quotes
        attrs[name] = unescape(value)
    return attrs


def _read_elements(text: str, position: int, attrs: dict[str, str]) -> int:
    """Add the elements from `position` on, such as `<title>Notes</title>`, to `attrs`.

    Returns where they end.
    """
    element = _ELEMENT.match(text, position)
    while element is not None and element[1] != "content":
        attrs[element[1]] = unescape(element[2])
        position = element.end()
        element = _ELEMENT.match(text, position)
    return position
