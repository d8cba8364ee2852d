"""What a segment says in each form: the parts as sent.

Messages are sent as they are. Attachments are sent in tags that their content can neither close nor open.
What was lowered becomes one inert line with a handle. A ledger line has the wording's version and the digest
of what was sent. So a change of words here needs a new version, and begins a new epoch in old conversations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from lamina.core.hashing import handle
from lamina.core.kinds import KINDS, REFERENCE_TAGS, Kind, Kinds, kind_of
from lamina.core.text import tags
from lamina.core.text.arguments import shorten_arguments
from lamina.core.text.characters import WHITE_SPACE, lower_ascii
from lamina.core.text.outline import outline_text, outline_with_names
from lamina.core.text.tags import escape_attribute, make_inert, wrap_in_nested_tag, wrap_in_tag
from lamina.core.text.user_words import add_rules
from lamina.core.values import (
    Digest,
    Document,
    Form,
    Image,
    Part,
    Raw,
    Segment,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.errors import BadInput, LaminaError, blame_function

COMPACT_LIMIT = 1_000
"""Characters of a COMPACT text: room for headings, or for some lines of either end."""

ARGUMENT_LIMIT = 200
"""Characters of one argument of a call that stay when large arguments are lowered."""

WORDING_VERSION = 4

NAME_LIMIT = 80
"""Characters of the description in a handle, which must stay one short line."""


Words = Callable[..., tuple[Part, ...] | str | None]
"""How one kind is worded: (segment, form, content digest, limit) to parts as sent, or to a text.

If a function answers None, the next one for the kind is asked, and at the end lamina's own words are used.
"""


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """A way to word segments. `words` holds the kinds with a wording of their own: a function, or several.

    `tagged` wraps messages in their kind's tag too: one flat transcript, as chunk renderers make it.
    `handles`: lowered text names the key by which it can be recalled. `named`: without handles it still says
    what it was.
    """

    kinds: Kinds = KINDS
    words: Mapping[str, Words | Sequence[Words]] = {}
    tagged: bool = False
    handles: bool = True
    named: bool = False

    def __call__(self, segment: Segment, form: Form, content: Digest, *, limit: int = 0) -> tuple[Part, ...]:
        """The parts of a segment as they are sent in this form.

        A kind with words of its own is asked first. A call stays a call in every form: only its large
        arguments are replaced. Otherwise the text is shortened, or replaced by one line with the handle.
        """
        if form is Form.OMITTED:
            return ()
        own_parts = self._ask_words(segment, form, content, limit)
        if own_parts is not None:
            return own_parts
        kind = kind_of(self.kinds, segment)
        if form is Form.FULL:
            return self._full(segment, kind, content)
        if isinstance(segment.parts[0], ToolCall) and not self.tagged:
            return (self._shorten_call(segment.parts[0], content, form),)
        if form is Form.COMPACT:
            return self._compact(segment, kind, content, limit or COMPACT_LIMIT)
        return _replace_content(segment, self._stub(segment, content), tagged=self.tagged)

    def _ask_words(
        self, segment: Segment, form: Form, content: Digest, limit: int
    ) -> tuple[Part, ...] | None:
        """What the caller's functions for a kind say; None if there are none, or all decline."""
        functions = self.words.get(segment.kind)
        if functions is None:
            return None
        if not isinstance(functions, Sequence):
            functions = (functions,)
        for words in functions:
            try:
                worded = words(segment, form, content, limit)
            except LaminaError:
                raise
            except Exception as error:
                hint = (
                    "it takes a segment, its form, its digest and a limit, and returns a text, parts or None"
                )
                raise blame_function(error, place=f"words[{segment.kind!r}]", hint=hint) from error
            match worded:
                case None:
                    continue
                case str():
                    return _replace_content(segment, worded, tagged=self.tagged)
                case tuple() if worded and all(isinstance(part, Part) for part in worded):
                    return worded
                case _:
                    raise BadInput(
                        f"the words for {form.value} are {describe_wrong_words(worded)}",
                        place=f"words[{segment.kind!r}]",
                        hint="return a text, a tuple of parts, or None for the usual words",
                    )
        return None

    def handle(self, content: Digest) -> str:
        """The handle of a content; "" if no handles are shown."""
        if not self.handles:
            return ""
        return handle(content)

    def reference(self, segment: Segment, content: Digest, *, short: bool = False) -> tuple[Part, ...]:
        """What is sent for an attachment whose equal content is sent in full above.

        A `short` one has no handle: it stands for content that is hardly longer, and only names it.
        """
        name = escape_attribute(name_of(segment) or segment.key)
        if short:
            return (Text(f'<reference to="{name}">above</reference>'),)
        attributes = f'to="{name}"'
        if self.handles:
            attributes += f' recall="{self.handle(content)}"'
        return (Text(f"<reference {attributes}>attached again, unchanged; it stands above</reference>"),)

    def late(self, result: ToolResult) -> tuple[Part, ...]:
        """A result that came after its call had been answered for it, as content of its own."""
        attrs = {"tool": result.name, "call_id": result.id}
        body = guard(text_of((result,)), self.kinds)
        return (Text(wrap_in_tag("late_result", attrs, body)),)

    def prior(self, segment: Segment, content: Digest, *, limit: int) -> tuple[Part, ...]:
        """An attachment of an earlier turn in the hoisted library; one that is shortened has its handle.

        A kind with words of its own is asked first, for the form that its length asks for. The tag names
        where the content came from and its kind, since the library mixes all kinds.
        """
        text = text_of(segment.parts)
        form = Form.COMPACT if len(text) > limit else Form.FULL
        own_parts = self._ask_words(segment, form, content, limit)
        if own_parts is not None:
            return own_parts
        body = outline_text(text, limit=limit, name=name_of(segment))
        if len(text) > limit:
            body = self._add_stub(body, segment, content)
        attrs = {"source": name_of(segment) or segment.key, "type": segment.kind}
        return (Text(wrap_in_tag("prior_context", attrs, guard(body, self.kinds))),)

    def _full(self, segment: Segment, kind: Kind, content: Digest) -> tuple[Part, ...]:
        """A segment in full: as it is, or with its text in the tag of its kind.

        Images and documents stand next to the tag. So do a provider's own blocks, unless everything is
        tagged.
        """
        if not self._is_in_tag(kind):
            return segment.parts
        worded: list[Part] = []
        verbatim: list[Part] = []
        for part in segment.parts:
            if isinstance(part, Raw) and not self.tagged:
                verbatim.append(part)
            else:
                worded.append(part)
        in_tag = self._wrap_in_tag(segment, kind, content, text_of(worded))
        return (in_tag, *_find_media(segment.parts), *verbatim)

    def _compact(self, segment: Segment, kind: Kind, content: Digest, limit: int) -> tuple[Part, ...]:
        """A segment shortened to its structure, with its handle on a line of its own."""
        text = text_of(segment.parts)
        body = outline_with_names(text, limit=limit, name=name_of(segment))
        if segment.kind == "user":
            body = add_rules(body, text, limit)
        body = self._add_stub(body, segment, content)
        if self._is_in_tag(kind):
            return (self._wrap_in_tag(segment, kind, content, body),)
        return _replace_content(segment, body, tagged=False)

    def _add_stub(self, body: str, segment: Segment, content: Digest) -> str:
        """A shortened text, and the line that says what it was, if this wording says that."""
        if not self.handles and not self.named:
            return body
        return f"{body}\n{self._stub(segment, content, verb='shortened')}"

    def _stub(self, segment: Segment, content: Digest, *, verb: str = "trimmed") -> str:
        """One line in place of content, with a handle, with a name alone, or with neither."""
        return stub(segment, self.handle(content), verb=verb, named=self.named)

    def _is_in_tag(self, kind: Kind) -> bool:
        """Whether a kind is sent in its tag, as attachments, sections and tagged transcripts are."""
        return self.tagged or kind.attachment or kind.section

    def _wrap_in_tag(self, segment: Segment, kind: Kind, content: Digest, body: str) -> Text:
        """A body in the tag of its kind, with the attributes that the kind shows.

        In a tagged transcript each tag has an id as well, and attributes that the parts imply, such as the
        tool.
        """
        if self.tagged:
            segment_id = segment.key or handle(content)
            values = segment.attrs | _implied_attributes(segment)
            attrs = {"id": segment_id} | _shown_attributes(kind, values)
            return Text(wrap_in_tag(kind.tag, attrs, guard(body, self.kinds)))
        attrs = _shown_attributes(kind, segment.attrs)
        if kind.nested:
            return Text(wrap_in_nested_tag(kind.tag, attrs, guard(body, self.kinds, extra=("content",))))
        return Text(wrap_in_tag(kind.tag, attrs, guard(body, self.kinds)))

    def _shorten_call(self, call: ToolCall, content: Digest, form: Form) -> ToolCall:
        """The call with its large arguments replaced, so that names and types stay what the schema says."""
        limit = ARGUMENT_LIMIT if form is Form.COMPACT else 0
        mark = "[trimmed]"
        if self.handles:
            mark = f'[trimmed: {{size:,}} bytes · recall("{self.handle(content)}")]'
        elif self.named:
            mark = "[trimmed: {size:,} bytes]"
        arguments = shorten_arguments(call.arguments, limit=limit, mark=mark)
        return ToolCall(id=call.id, name=call.name, arguments=arguments)


PLAIN = Wording()
"""Messages as they are, attachments in tags, handles in what was lowered."""

TAGGED = Wording(tagged=True)
"""Every segment in the tag of its kind, with its id: the transcript of a chunk renderer."""


def describe_wrong_words(value: object) -> str:
    """What a function returned that is neither a text nor parts: `a value of type list`, `an empty tuple`."""
    if value == ():
        return "an empty tuple"
    return f"a value of type {type(value).__name__}"


def stub(segment: Segment, recall_key: str, *, verb: str = "trimmed", named: bool = False) -> str:
    """One inert line in place of content: what it was, its size, and the key to recall it by.

    Without a key it says what it was only if that is asked for.
    """
    if not recall_key and not named:
        return f"[{verb}]"
    size = len(text_of(segment.parts, data=True).encode("utf-8", "surrogatepass"))
    name = make_inert(describe_segment(segment), NAME_LIMIT)
    if not recall_key:
        return f"[{verb}: {name} · {size:,} bytes]"
    return f'[{verb}: {name} · {size:,} bytes · recall("{recall_key}")]'


def describe_segment(segment: Segment) -> str:
    """What a segment is, in a few words: its tool, its name, or its kind.

    A result is `read_file src/app.py`, an attachment `note docs/spec.md`, a picture without a name `image`.
    """
    match segment.parts[:1]:
        case (ToolResult() as result,):
            tool_name = result.name or segment.attrs.get("tool", "")
            return _join_words(tool_name, name_of(segment)) or "result"
        case (ToolCall() as call,):
            return call.name
        case (Image() | Document() as media,):
            return _join_words(lower_ascii(type(media).__name__), name_of(segment))
        case _:
            return f"{segment.kind} {name_of(segment)}".strip(WHITE_SPACE)


def _join_words(first: str, second: str) -> str:
    """Both with a space between them, or the one that is not empty."""
    return " ".join(word for word in (first, second) if word)


def name_of(segment: Segment) -> str:
    """The name a reader knows a segment by.

    Its attributes say it, the most specific first; otherwise the file name of a document in it.
    """
    name = pick_name(segment.attrs)
    if name:
        return name
    for part in segment.parts:
        if isinstance(part, Document) and part.name:
            return part.name
    return ""


def pick_name(attributes: Mapping[str, str]) -> str:
    """The attribute that names a segment best; "" if none does.

    A path says more than a title: two notes may have one title.
    """
    for attribute in ("path", "url", "source", "name", "title"):
        if attributes.get(attribute):
            return attributes[attribute]
    return ""


def text_of(parts: Iterable[Part], *, data: bool = False) -> str:
    """All text of some parts, in order.

    Images and documents are named in brackets; with `data` their data or URL is the text.
    """
    return "\n".join(_text_of_part(part, data=data) for part in parts)


def visible_text(parts: Iterable[Part]) -> str:
    """What a reader of a chat sees of a message: its texts, and `[image]` for each picture."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            lines.append(part.text)
        elif isinstance(part, Image):
            lines.append("[image]")
    return "\n".join(lines)


def _text_of_part(part: Part, *, data: bool) -> str:
    """What one part says as text; a provider's own block is shown as JSON."""
    match part:
        case Text(text=text) | Thinking(text=text):
            return text
        case ToolCall(arguments=arguments):
            return arguments
        case ToolResult(content=content):
            return text_of(content, data=data)
        case Image() | Document():
            return _text_of_media(part, data=data)
        case Raw():
            return json.dumps(part.data, ensure_ascii=False, sort_keys=True, default=str)


def _text_of_media(media: Image | Document, *, data: bool) -> str:
    """What a picture or document says: its text, or its data if that is asked for, or what it is."""
    match media:
        case Document(text=text) if text:
            return text
        case _ if data:
            return media.data or media.url
        case Document(name=name):
            return f"[Document {name}]"
        case _:
            return "[Image content]"


def _find_media(parts: Iterable[Part]) -> Iterator[Part]:
    """Images and documents without text, which are sent next to the tag, not in it."""
    for part in parts:
        match part:
            case ToolResult(content=content):
                yield from _find_media(content)
            case Image() | Document(text=""):
                yield part
            case _:
                pass


def guard(body: str, kinds: Kinds = KINDS, *, extra: tuple[str, ...] = ()) -> str:
    """Text that can neither close its tag nor open one of these kinds; `unguard` gives back what went in."""
    return tags.guard(body, _tags_of(kinds) + extra)


def unguard(body: str, kinds: Kinds = KINDS, *, extra: tuple[str, ...] = ()) -> str:
    """The text that `guard` was called with."""
    return tags.unguard(body, _tags_of(kinds) + extra)


def has_balanced_tags(parts: tuple[Part, ...], kinds: Kinds = KINDS) -> bool:
    """Whether tagged text opens one tag at its beginning and closes it at its end, and no other anywhere.

    Parts that begin with something else than text have no tag, and nothing to check.
    """
    if not parts or not isinstance(parts[0], Text):
        return True
    return tags.is_balanced(parts[0].text, _tags_of(kinds))


def _tags_of(kinds: Kinds) -> tuple[str, ...]:
    """All tags that lamina may write, which content must not forge.

    They are sorted, so that equal tables of kinds give equal patterns.
    """
    return (*sorted({kind.tag for kind in kinds.values()}), *REFERENCE_TAGS)


def _shown_attributes(kind: Kind, values: Mapping[str, str]) -> dict[str, str]:
    """The attributes that a kind shows, in the order in which it lists them."""
    return {name: values[name] for name in kind.attributes if name in values}


def _implied_attributes(segment: Segment) -> dict[str, str]:
    """The attributes that a segment's parts and role already say. Its own attributes come before them."""
    match segment.parts[:1]:
        case (ToolCall() as call,):
            implied = {
                "action": segment.kind,
                "status": "pending",
                "tool": call.name,
                "skill": call.name,
                "call_id": call.id,
            }
        case (ToolResult() as result,):
            implied = {"call_id": result.id, "success": "true"}
            if result.error:
                implied |= {"success": "false", "error": "true"}
            if result.name:
                implied |= {"tool": result.name, "skill": result.name}
        case _:
            implied = {"role": segment.role.value}
    return implied | segment.attrs


def _replace_content(segment: Segment, text: str, *, tagged: bool) -> tuple[Part, ...]:
    """`text` in the place of a segment's content: a result stays the result of its call."""
    match segment.parts[:1]:
        case (ToolResult() as result,) if not tagged:
            content = (Text(text),)
            return (ToolResult(id=result.id, content=content, name=result.name, error=result.error),)
        case _:
            return (Text(text),)
