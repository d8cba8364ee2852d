"""A chat as one Markdown page: what was said, readable, and the whole log in a comment.

    ---
    epoch: 1729873880000
    lamina: 1
    ---
    <!-- lamina:1
    {"segment": ...}
    -->

    **user**: ...

The comment holds every segment as `codec` writes it, so a page gives back the log that it was written
from. It stands before the first message, where the system that this format comes from looks for nothing. If
the readable part was changed by hand since, that is what counts; what it refers to is still taken from the
comment. A comment can hold what the page does not show: for a page by a stranger, pass `hidden=False`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lamina.core.hashing import canonical
from lamina.core.text.characters import WHITE_SPACE, is_blank
from lamina.core.values import Image, Role, Segment, Text
from lamina.core.wording import named
from lamina.errors import BadInput
from lamina.formats.codec import decode, encode
from lamina.formats.markdown.lines import Message, body, front, messages, parted
from lamina.formats.markdown.mentions import Mention, mentioning, mentions
from lamina.segments import assistant, user

VERSION = 1
TAG = "copilot-conversation"
_OPENS, _CLOSES = f"<!-- lamina:{VERSION}\n", "\n-->"
_SORTS: Mapping[str, str] = {
    "note": "note",
    "file": "note",
    "pdf": "note",
    "url": "url",
    "video": "url",
    "web_tab": "web_tab",
}
_EDITED = "the page was changed by hand: what it shows counts, {} segments that it does not show are left out"


class MarkdownChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat and what its page says of it. `epoch` and `accessed` are milliseconds; `state` is the ledger's.

    `notes` say what could not be read as it stands.
    """

    log: tuple[Segment, ...] = ()
    epoch: int | None = None
    model: str = ""
    topic: str = ""
    project: str = ""
    accessed: int | None = None
    tags: tuple[str, ...] = (TAG,)
    state: dict[str, Any] = {}
    notes: tuple[str, ...] = ()


def write(chat: MarkdownChat, *, hidden: bool = True) -> str:
    """The page of a chat; without `hidden`, only what it shows."""
    comment = f"{_comment(chat)}\n" if hidden else ""
    return f"{front(_fields(chat))}{comment}\n{body(shown(chat.log))}\n"


def read(page: str, *, hidden: bool = True) -> MarkdownChat:
    """The chat of a page, whoever wrote it. Without `hidden`, only what the page shows."""
    page = page.removeprefix("\ufeff")
    if page.startswith("---\r\n"):
        page = page.replace("\r\n", "\n")
    fields, rest = parted(page)
    own = _version(fields) if "lamina" in fields else False
    above, said = messages(rest if own else rest.strip(WHITE_SPACE), exact=own)
    chat = _described(fields)
    kept = _kept(above) if own and hidden else None
    if kept is None:
        return msgspec.structs.replace(chat, log=tuple(_segments(said, {})))
    log, state = kept
    if _same(shown(log), said):
        return msgspec.structs.replace(chat, log=log, state=state)
    known = {mention: segment for segment in log if (mention := _mention(segment))}
    left = sum(segment.kind not in ("user", "assistant") for segment in log if not _mention(segment))
    return msgspec.structs.replace(chat, log=tuple(_segments(said, known)), notes=(_EDITED.format(left),))


def shown(log: Iterable[Segment]) -> list[Message]:
    """What a page shows of a log: what user and model said, each question with what was attached to it."""
    found: list[Message] = []
    waiting: list[Mention] = []
    for segment in log:
        if mention := _mention(segment):
            waiting.append(mention)
        elif segment.kind in ("user", "assistant") and not segment.covers:
            sender = "user" if segment.role is Role.USER else "ai"
            continues = segment.joins and bool(found) and found[-1].sender == sender
            if sender == "ai":
                _late(found, waiting)
            refers = [*waiting, *mentions(segment)] if sender == "user" else []
            waiting = waiting if sender == "ai" else []
            before = found.pop() if continues else None
            found.append(_message(segment, sender, refers, before))
    _late(found, waiting)
    return found


def _late(found: list[Message], waiting: list[Mention]) -> None:
    """What was attached after the question belongs to it."""
    if waiting and found and found[-1].sender == "user":
        refers = (*found[-1].refers, *((m.sort, m.name) for m in waiting))
        found[-1] = msgspec.structs.replace(found[-1], refers=refers)
        waiting.clear()


def _message(segment: Segment, sender: str, refers: list[Mention], before: Message | None) -> Message:
    text = "\n".join(
        part.text if isinstance(part, Text) else "[image]"
        for part in segment.parts
        if isinstance(part, Text | Image)
    )
    pairs = tuple((mention.sort, mention.name) for mention in refers)
    if before is None:
        return Message(sender=sender, text=text, refers=pairs, at=segment.at)
    return msgspec.structs.replace(before, text=f"{before.text}\n{text}", refers=before.refers + pairs)


def _mention(segment: Segment) -> Mention | None:
    """The name by which an attachment is listed; None for what is none, or has no name."""
    sort, name = _SORTS.get(segment.kind), named(segment) or segment.key
    return Mention(sort, name) if sort and name else None


def _segments(said: Iterable[Message], known: Mapping[Mention, Segment]) -> Iterable[Segment]:
    """A log of what was said; what is known of what it refers to stands before it."""
    for message in said:
        if message.sender == "ai":
            yield assistant(message.text, at=message.at)
            continue
        named_here = [Mention(sort, name) for sort, name in message.refers]
        yield from (known[mention] for mention in named_here if mention in known)
        yield mentioning(user(message.text, at=message.at), (m for m in named_here if m not in known))


def _same(wrote: list[Message], read_: list[Message]) -> bool:
    """Whether a page shows what it was written with; white space at ends of lines is an editor's affair."""
    return _bare(body(wrote)) == _bare(body(read_))


def _bare(text: str) -> list[str]:
    return [line.rstrip(WHITE_SPACE) for line in text.split("\n") if not is_blank(line)]


def _comment(chat: MarkdownChat) -> str:
    head = canonical({"lamina": VERSION, "state": chat.state}).decode()
    records = [head, *(encode(segment).decode() for segment in chat.log)]
    return _OPENS + "\n".join(_inert(record) for record in records) + _CLOSES


def _inert(record: str) -> str:
    """JSON that can neither end a comment nor begin a message; in JSON these stand in strings only."""
    return record.replace("--", "-\\u002d").replace("**", "*\\u002a").replace(">", "\\u003e")


def _kept(above: str) -> tuple[tuple[Segment, ...], dict[str, Any]] | None:
    start = above.find(_OPENS)
    end = above.find(_CLOSES, start)
    if start < 0 or end < 0:
        return None
    head, *records = above[start + len(_OPENS) : end].split("\n")
    try:
        plain = msgspec.json.decode(head, type=dict[str, Any])
        state = msgspec.convert(plain.get("state", {}), dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        hint = "it is not what was written; pass hidden=False to read what the page shows"
        raise BadInput(str(error), place="comment", hint=hint) from None
    return tuple(decode(record.encode() for record in records)), state


def _fields(chat: MarkdownChat) -> dict[str, str | int | tuple[str, ...]]:
    words = {"modelKey": chat.model, "topic": chat.topic, "projectId": chat.project}
    numbers = {"epoch": chat.epoch, "lastAccessedAt": chat.accessed, "lamina": VERSION}
    fields: dict[str, str | int | tuple[str, ...]] = {n: v for n, v in numbers.items() if v is not None}
    return fields | {n: v for n, v in words.items() if v} | ({"tags": chat.tags} if chat.tags else {})


def _version(fields: Mapping[str, str | list[str]]) -> bool:
    if fields["lamina"] != str(VERSION):
        hint = f"this release reads version {VERSION}; a newer one wrote it"
        raise BadInput(f"version {fields['lamina']!r}", place="page", hint=hint)
    return True


def _described(fields: Mapping[str, str | list[str]]) -> MarkdownChat:
    words = {name: value for name, value in fields.items() if isinstance(value, str)}
    tags = fields.get("tags", ())
    return MarkdownChat(
        epoch=_number(words.get("epoch", "")),
        accessed=_number(words.get("lastAccessedAt", "")),
        model=words.get("modelKey", ""),
        topic=words.get("topic", ""),
        project=words.get("projectId", ""),
        tags=tuple(tags) if not isinstance(tags, str) else (tags,),
    )


def _number(value: str) -> int | None:
    """A number, however it was written; None for what is none."""
    try:
        return int(float(value))
    except (ValueError, OverflowError):
        return None
