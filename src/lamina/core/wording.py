"""What a segment says in each form: the parts as sent.

Messages are sent as they are; attachments stand in tags that their content can neither close nor
open; what was lowered becomes one inert line with a handle. A ledger line freezes the wording's
version, so a change of words here needs a new version beside the old one, never an edit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from lamina.core.hashing import handle, short_handle
from lamina.core.kinds import KINDS, REFERENCE_TAGS, Kind, Kinds, row
from lamina.core.text import tags
from lamina.core.text.arguments import shorter
from lamina.core.text.characters import WHITE_SPACE, lower_ascii
from lamina.core.text.outline import indexed, outline_text
from lamina.core.text.tags import escape, inert, nested, tag
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

COMPACT_LIMIT = 1_000
"""Characters of a COMPACT text: room for headings, or for some lines of either end."""

ARGUMENT_LIMIT = 200
"""Characters of one argument of a call that stay when large arguments are lowered."""

NAME_LIMIT = 80
"""Characters of the description in a handle, which must stay one short line."""

Words = Callable[[Segment, Form, Digest, int], tuple[Part, ...]]
"""How one kind is worded: (segment, form, content digest, limit) to parts as sent."""


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """A way to word segments. `words` holds the kinds with a wording of their own.

    `tagged` wraps messages in their kind's tag too (one flat transcript, as the chunk renderers of
    agent frameworks do). `handles`: lowered text names the key by which it can be recalled. Since version
    2 a COMPACT text lists the names in what it leaves out; since version 3 a handle has 80 bits, not 48.
    """

    version: int = 3
    kinds: Kinds = KINDS
    words: Mapping[str, Words] = {}
    tagged: bool = False
    handles: bool = True

    def __call__(self, segment: Segment, form: Form, content: Digest, *, limit: int = 0) -> tuple[Part, ...]:
        if form is Form.OMITTED:
            return ()
        own = self.words.get(segment.kind)
        if own is not None:
            return own(segment, form, content, limit)
        kind = row(self.kinds, segment)
        if form is Form.FULL:
            return self._full(segment, kind, content)
        if isinstance(segment.parts[0], ToolCall) and not self.tagged:
            return (self._shorter_call(segment.parts[0], content, form),)
        if form is Form.COMPACT:
            return self._compact(segment, kind, content, limit or COMPACT_LIMIT)
        return _like(segment, stub(segment, self.handle(content)), tagged=self.tagged)

    def of(self, version: int) -> Wording:
        """These words as an earlier version had them: what was sent stays as it was."""
        return self if version == self.version else msgspec.structs.replace(self, version=version)

    def handle(self, content: Digest) -> str:
        """The handle of a content as this version writes it; nothing where no handles are shown."""
        if not self.handles:
            return ""
        return handle(content) if self.version > 2 else short_handle(content)

    def reference(self, segment: Segment, content: Digest) -> tuple[Part, ...]:
        """Stands for an attachment whose equal content stands in full above."""
        name = escape(named(segment) or segment.key)
        again = f' recall="{self.handle(content)}"' if self.handles else ""
        return (
            Text(f'<reference to="{name}"{again}>attached again, unchanged; it stands above</reference>'),
        )

    def late(self, result: ToolResult) -> tuple[Part, ...]:
        """A result that came after its call had been answered for it, as content of its own."""
        attrs = {"tool": result.name, "call_id": result.id}
        return (Text(tag("late_result", attrs, guard(text_of((result,)), self.kinds))),)

    def prior(self, segment: Segment, content: Digest, *, limit: int) -> tuple[Part, ...]:
        """An attachment of an earlier turn in the hoisted library; one that is shortened has its handle."""
        text = text_of(segment.parts)
        body = outline_text(text, limit=limit, name=named(segment))
        if len(text) > limit and self.handles:
            body = f"{body}\n{stub(segment, self.handle(content), verb='shortened')}"
        attrs = {"source": named(segment) or segment.key, "type": segment.kind}
        return (Text(tag("prior_context", attrs, guard(body, self.kinds))),)

    def _full(self, segment: Segment, kind: Kind, content: Digest) -> tuple[Part, ...]:
        if not (self.tagged or kind.attachment or kind.section):
            return segment.parts
        verbatim = () if self.tagged else tuple(part for part in segment.parts if isinstance(part, Raw))
        body = text_of(part for part in segment.parts if part not in verbatim)
        return (*self._in_tag(segment, kind, content, body), *_media(segment.parts), *verbatim)

    def _compact(self, segment: Segment, kind: Kind, content: Digest, limit: int) -> tuple[Part, ...]:
        shortened = indexed if self.version > 1 else outline_text
        body = shortened(text_of(segment.parts), limit=limit, name=named(segment))
        if self.handles:
            body = f"{body}\n{stub(segment, self.handle(content), verb='shortened')}"
        if self.tagged or kind.attachment or kind.section:
            return self._in_tag(segment, kind, content, body)
        return _like(segment, body, tagged=False)

    def _in_tag(self, segment: Segment, kind: Kind, content: Digest, body: str) -> tuple[Part, ...]:
        known = segment.attrs | (_implied(segment) if self.tagged else {})
        attrs = {name: known[name] for name in kind.attributes if name in known}
        if self.tagged:
            name = segment.key or handle(content)
            return (Text(tag(kind.tag, {"id": name} | attrs, guard(body, self.kinds))),)
        if kind.nested:
            return (Text(nested(kind.tag, attrs, guard(body, self.kinds, extra=("content",)))),)
        return (Text(tag(kind.tag, attrs, guard(body, self.kinds))),)

    def _shorter_call(self, call: ToolCall, content: Digest, form: Form) -> ToolCall:
        """The call with its large arguments replaced, so that names and types stay what the schema says."""
        limit = ARGUMENT_LIMIT if form is Form.COMPACT else 0
        mark = "[trimmed]"
        if self.handles:
            mark = f'[trimmed: {{size:,}} bytes · recall("{self.handle(content)}")]'
        return ToolCall(id=call.id, name=call.name, arguments=shorter(call.arguments, limit=limit, mark=mark))


PLAIN = Wording()
"""Messages as they are, attachments in tags, handles in what was lowered."""

TAGGED = Wording(tagged=True)
"""Every segment in the tag of its kind, with its id: the transcript of a chunk renderer."""


def stub(segment: Segment, recall_key: str, *, verb: str = "trimmed") -> str:
    """One inert line in place of content: what it was, its size, and the key to recall it by, if any."""
    if not recall_key:
        return f"[{verb}]"
    size = len(text_of(segment.parts, data=True).encode("utf-8", "surrogatepass"))
    name = inert(described(segment), NAME_LIMIT)
    return f'[{verb}: {name} · {size:,} bytes · recall("{recall_key}")]'


def described(segment: Segment) -> str:
    """What a segment is, in a few words: its tool, its name, or its kind."""
    first = segment.parts[0] if segment.parts else None
    if isinstance(first, ToolResult):
        return (
            " ".join(filter(None, (first.name or segment.attrs.get("tool", ""), named(segment)))) or "result"
        )
    if isinstance(first, ToolCall):
        return first.name
    if isinstance(first, Image | Document):
        return " ".join(filter(None, (lower_ascii(type(first).__name__), named(segment))))
    return f"{segment.kind} {named(segment)}".strip(WHITE_SPACE)


def named(segment: Segment) -> str:
    """The name a reader knows a segment by."""
    for name in ("path", "url", "source", "name", "title"):
        if segment.attrs.get(name):
            return segment.attrs[name]
    return next((part.name for part in segment.parts if isinstance(part, Document) and part.name), "")


def text_of(parts: Iterable[Part], *, data: bool = False) -> str:
    """All text of some parts, in order; what has none is named in brackets, or with `data` given as sent."""
    return "\n".join(_text(part, data=data) for part in parts)


def _text(part: Part, *, data: bool) -> str:
    match part:
        case Text(text=text) | Thinking(text=text):
            return text
        case ToolCall(arguments=arguments):
            return arguments
        case ToolResult(content=content):
            return text_of(content, data=data)
        case Image():
            return (part.data or part.url) if data else "[Image content]"
        case Document():
            return part.text or ((part.data or part.url) if data else f"[Document {part.name}]")
        case Raw():
            return json.dumps(part.data, ensure_ascii=False, sort_keys=True, default=str)


def _media(parts: Iterable[Part]) -> Iterator[Part]:
    """What text cannot say, and so stands beside a tag."""
    for part in parts:
        if isinstance(part, ToolResult):
            yield from _media(part.content)
        elif isinstance(part, Image) or (isinstance(part, Document) and not part.text):
            yield part


def guard(body: str, kinds: Kinds = KINDS, *, extra: tuple[str, ...] = ()) -> str:
    """Text that can neither close its tag nor open one of these kinds; `unguard` gives back what went in."""
    return tags.guard(body, _tags(kinds) + extra)


def unguard(body: str, kinds: Kinds = KINDS, *, extra: tuple[str, ...] = ()) -> str:
    return tags.unguard(body, _tags(kinds) + extra)


def tag_balance(parts: tuple[Part, ...], kinds: Kinds = KINDS) -> bool:
    """Whether tagged text opens one tag at its beginning and closes it at its end, and no other anywhere."""
    return not (parts and isinstance(parts[0], Text)) or tags.balanced(parts[0].text, _tags(kinds))


def _tags(kinds: Kinds) -> tuple[str, ...]:
    return (*sorted({kind.tag for kind in kinds.values()}), *REFERENCE_TAGS)


def _implied(segment: Segment) -> dict[str, str]:
    """The attributes that a segment's parts and role already say."""
    match segment.parts[:1]:
        case (ToolCall() as call,):
            named_call = dict.fromkeys(("tool", "skill"), call.name) | {"call_id": call.id}
            return {"action": segment.kind, "status": "pending"} | named_call | segment.attrs
        case (ToolResult() as result,):
            outcome = {"success": "false", "error": "true"} if result.error else {"success": "true"}
            names = dict.fromkeys(("tool", "skill"), result.name) if result.name else {}
            return names | {"call_id": result.id} | outcome | segment.attrs
        case _:
            return {"role": segment.role.value} | segment.attrs


def _like(segment: Segment, text: str, *, tagged: bool) -> tuple[Part, ...]:
    """`text` in the place of a segment's content: a result stays the result of its call."""
    first = segment.parts[0] if segment.parts else None
    if isinstance(first, ToolResult) and not tagged:
        return (ToolResult(id=first.id, content=(Text(text),), name=first.name, error=first.error),)
    return (Text(text),)
