"""Writes and reads a chat as one Markdown page: the messages, readable, and the whole log in a comment.

    ---
    epoch: 1729873880000
    lamina: 1
    ---
    <!-- lamina:1
    {"segment": ...}
    -->

    **user**: ...

The comment holds every segment as `codec` writes it, so reading a page gives back the log that it was written
from. The comment stands before the first message, where the system that this format comes from looks for
nothing. If somebody has edited the readable part since, the readable part counts; only the attachments that
it refers to are still taken from the comment. A comment can hold text that the page does not show: pass
`hidden=False` to read a page by a stranger.

Of YAML only this much is written and read as front matter: words, numbers, and lists of words. Words are
written in quotes, so that no value can end the front matter or begin another field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.hashing import canonical_json
from lamina.core.text.characters import WHITE_SPACE, is_blank
from lamina.core.values import Role, Segment
from lamina.core.wording import name_of, visible_text
from lamina.errors import BadInput
from lamina.formats.codec import decode, encode
from lamina.formats.markdown.lines import (
    Mention,
    Message,
    format_messages,
    mentions,
    parse_messages,
    replace_mentions,
)
from lamina.segments import assistant, user

VERSION = 1
TAG = "copilot-conversation"
_COMMENT_START = f"<!-- lamina:{VERSION}\n"
_COMMENT_END = "\n-->"
_SORTS: Mapping[str, str] = {
    "note": "note",
    "file": "note",
    "pdf": "note",
    "url": "url",
    "video": "url",
    "web_tab": "web_tab",
}
"""The kinds of segments that a page lists as context, and the sort of mention that each becomes."""

_EDITED = "the page was changed by hand: what it shows counts, {} segments that it does not show are left out"

_FRONT_MATTER = re.compile(
    r"---\n((?:[^\n]*\n)*?)---(?:\n|\Z)"
)  # "---\ntopic: a\n---\n": group 1 is "topic: a\n"

_SINGLE_QUOTED = re.compile(r"'(.*)'", re.DOTALL)  # "'it''s'": group 1 is "it''s"


class MarkdownChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat and the fields of its page. `epoch` and `accessed` are milliseconds; `state` is the ledger's.

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
    """Write the page of a chat; without `hidden`, only its readable part."""
    comment = ""
    if hidden:
        comment = _format_comment(chat) + "\n"
    return f"{format_front_matter(_page_fields(chat))}{comment}\n{format_messages(list_messages(chat.log))}\n"


def read(page: str, *, hidden: bool = True) -> MarkdownChat:
    """Read the chat of a page, whoever wrote it. Without `hidden`, only its readable part is read.

    A page that lamina did not write has no field `lamina`, and its messages are read as its own system writes
    them.
    """
    page = page.removeprefix("\ufeff")
    if page.startswith("---\r\n"):
        page = page.replace("\r\n", "\n")
    fields, rest = split_front_matter(page)
    chat = _chat_of_fields(fields)
    if "lamina" not in fields:
        _, messages = parse_messages(rest.strip(WHITE_SPACE), exact=False)
        return msgspec.structs.replace(chat, log=tuple(_log_of_messages(messages, {})))
    _check_version(fields["lamina"])
    above, messages = parse_messages(rest, exact=True)
    comment = None
    if hidden:
        comment = _read_comment(above)
    if comment is None:
        return msgspec.structs.replace(chat, log=tuple(_log_of_messages(messages, {})))
    log, state = comment
    if _show_same_text(list_messages(log), messages):
        return msgspec.structs.replace(chat, log=log, state=state)
    return _read_edited_page(chat, messages, log)


def list_messages(log: Iterable[Segment]) -> list[Message]:
    """The messages that a page shows of a log: those of user and model, each with its attachments.

    An attachment belongs to the question after it, or to the one before it if the model answers next. Tools
    and system text are not shown.
    """
    messages: list[Message] = []
    pending: list[Mention] = []  # attachments that no message refers to yet
    for segment in log:
        mention = _mention_of(segment)
        if mention is not None:
            pending.append(mention)
            continue
        if segment.kind not in ("user", "assistant") or segment.covers:
            continue
        if segment.role is Role.USER:
            message = _message_of(segment, "user", [*pending, *mentions(segment)])
            pending = []
        else:
            # the model answers next, so they belong to the question before
            _attach_to_question(messages, pending)
            message = _message_of(segment, "ai", [])
        if segment.joins and messages and messages[-1].sender == message.sender:
            messages[-1] = _join_messages(messages[-1], message)
        else:
            messages.append(message)
    _attach_to_question(messages, pending)
    return messages


def _attach_to_question(messages: list[Message], pending: list[Mention]) -> None:
    """Attachments that follow a question belong to it. They are taken out of `pending`.

    Question, file, answer: the file belongs to the question. After an answer it waits for the next one.
    """
    if not pending or not messages or messages[-1].sender != "user":
        return
    question = messages[-1]
    references = (*question.references, *pending)
    messages[-1] = msgspec.structs.replace(question, references=references)
    pending.clear()


def _message_of(segment: Segment, sender: str, references: Iterable[Mention]) -> Message:
    """A segment as a message that a reader sees. Of a picture it has the name only."""
    text = visible_text(segment.parts)
    return Message(sender=sender, text=text, references=tuple(references), at=segment.at)


def _join_messages(first: Message, second: Message) -> Message:
    """Two messages of one sender as one, with the references of both."""
    return msgspec.structs.replace(
        first, text=f"{first.text}\n{second.text}", references=first.references + second.references
    )


def _mention_of(segment: Segment) -> Mention | None:
    """The mention by which an attachment is listed; None for other segments and those without a name.

    A note `docs/spec.md` is the mention `("note", "docs/spec.md")`.
    """
    sort = _SORTS.get(segment.kind)
    if sort is None:
        return None
    name = name_of(segment) or segment.key
    if not name:
        return None
    return Mention(sort, name)


def _read_edited_page(
    chat: MarkdownChat, messages: Iterable[Message], log: Iterable[Segment]
) -> MarkdownChat:
    """The chat of a page that was edited by hand: its messages, with the attachments of the stored log."""
    attachments: dict[Mention, Segment] = {}
    left_out = 0
    for segment in log:
        mention = _mention_of(segment)
        if mention is not None:
            attachments[mention] = segment
        elif segment.kind not in ("user", "assistant"):
            # tools and system text: the page does not show them, so they are lost
            left_out += 1
    new_log = tuple(_log_of_messages(messages, attachments))
    return msgspec.structs.replace(chat, log=new_log, notes=(_EDITED.format(left_out),))


def _log_of_messages(
    messages: Iterable[Message], attachments: Mapping[Mention, Segment]
) -> Iterator[Segment]:
    """A log of messages. Attachments stand before the message that refers to them; others stay mentions.

    A mention is resolved by its sort and name: the stored log may have such an attachment.
    """
    for message in messages:
        if message.sender == "ai":
            yield assistant(message.text, at=message.at)
            continue
        unresolved: list[Mention] = []
        for mention in message.references:
            if mention in attachments:
                yield attachments[mention]
            else:
                unresolved.append(mention)
        yield replace_mentions(user(message.text, at=message.at), unresolved)


def _show_same_text(written: Sequence[Message], messages: Sequence[Message]) -> bool:
    """Whether a page still shows what was written. Editors may change white space at the ends of lines."""
    return _bare_lines(format_messages(written)) == _bare_lines(format_messages(messages))


def _bare_lines(text: str) -> list[str]:
    """The lines of a text that say something, without spaces at their ends."""
    return [line.rstrip(WHITE_SPACE) for line in text.split("\n") if not is_blank(line)]


def _format_comment(chat: MarkdownChat) -> str:
    """The whole conversation as a comment, which a reader of the page does not see."""
    records = [canonical_json({"lamina": VERSION, "state": chat.state}).decode()]
    records += [encode(segment).decode() for segment in chat.log]
    return _COMMENT_START + "\n".join(_escape_record(record) for record in records) + _COMMENT_END


def _escape_record(record: str) -> str:
    """JSON that can neither end a comment nor begin a message.

    In JSON these characters stand in strings only, so they can be written as escapes.
    """
    return record.replace("--", "-\\u002d").replace("**", "*\\u002a").replace(">", "\\u003e")


def _read_comment(above: str) -> tuple[tuple[Segment, ...], dict[str, Any]] | None:
    """The log and the state in the comment above the messages; None if there is no comment.

    The first line has the state, each further line a segment.
    """
    start = above.find(_COMMENT_START)
    end = above.find(_COMMENT_END, start)
    if start < 0 or end < 0:
        return None
    head, *records = above[start + len(_COMMENT_START) : end].split("\n")
    try:
        fields = msgspec.json.decode(head, type=dict[str, Any])
        state = msgspec.convert(fields.get("state", {}), dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadInput(
            str(error),
            place="comment",
            hint="it is not what was written; pass hidden=False to read what the page shows",
        ) from None
    return tuple(decode(record.encode() for record in records)), state


def _page_fields(chat: MarkdownChat) -> dict[str, str | int | tuple[str, ...]]:
    """The front matter of a chat. A field without a value is left out."""
    fields = {
        "epoch": chat.epoch,
        "lastAccessedAt": chat.accessed,
        "lamina": VERSION,
        "modelKey": chat.model,
        "topic": chat.topic,
        "projectId": chat.project,
        "tags": chat.tags,
    }
    return {name: value for name, value in fields.items() if value is not None and value not in ("", ())}


def _check_version(version: str | list[str]) -> None:
    """Raise BadInput for a page of another version."""
    if version != str(VERSION):
        hint = f"this lamina reads version {VERSION}: update it, or export the page again"
        raise BadInput(f"version {version!r}", place="page", hint=hint)


def _chat_of_fields(fields: Mapping[str, str | list[str]]) -> MarkdownChat:
    """A chat without its log, from the fields at the top of a page."""
    # people edit these fields: a list may be where a text belongs, and one tag may stand without a list
    words = {name: value for name, value in fields.items() if isinstance(value, str)}
    tags = fields.get("tags", [])
    if isinstance(tags, str):
        tags = [tags]
    return MarkdownChat(
        epoch=_parse_number(words.get("epoch", "")),
        accessed=_parse_number(words.get("lastAccessedAt", "")),
        model=words.get("modelKey", ""),
        topic=words.get("topic", ""),
        project=words.get("projectId", ""),
        tags=tuple(tags),
    )


def _parse_number(value: str) -> int | None:
    """The number in a field, also if it is written as `1.7e12`; None if there is none."""
    try:
        return int(float(value))
    except (ValueError, OverflowError):
        return None


def format_front_matter(fields: Mapping[str, str | int | Iterable[str]]) -> str:
    """Write fields as front matter.

    `{"epoch": 7, "tags": ["a"]}` becomes the lines `epoch: 7`, `tags:` and `  - "a"` between two of
    `---`.
    """
    lines = ["---"]
    for name, value in fields.items():
        if isinstance(value, int):
            lines.append(f"{name}: {value}")
        elif isinstance(value, str):
            lines.append(f"{name}: {_quote(value)}")
        else:
            lines.append(f"{name}:")
            lines += [f"  - {_quote(item)}" for item in value]
    lines.append("---")
    return "\n".join(lines) + "\n"


def split_front_matter(page: str) -> tuple[dict[str, str | list[str]], str]:
    """Split a page into the fields of its front matter, none if it has no front matter, and the rest."""
    match = _FRONT_MATTER.match(page)
    if match is None:
        return {}, page
    return _read_fields(match[1]), page[match.end() :]


def _read_fields(text: str) -> dict[str, str | list[str]]:
    """The fields in these lines. Lines that are neither a field nor an item of a list are skipped.

    `tags:` begins a list, and ` - "a"` in the next line is its first item.
    """
    fields: dict[str, str | list[str]] = {}
    items: list[str] = []
    for line in text.split("\n"):
        if line.startswith(("  - ", "- ")):
            items.append(_unquote(line.partition("- ")[2]))
            continue
        name, colon, value = line.partition(":")
        if not colon or is_blank(name) or line.startswith(" "):
            continue
        items = []
        if is_blank(value):
            fields[name.strip(WHITE_SPACE)] = items
        else:
            fields[name.strip(WHITE_SPACE)] = _unquote(value)
    return fields


def _quote(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _unquote(value: str) -> str:
    """A value without its quotes, which are those of YAML: `'it''s'`, `"it's"`, or none."""
    value = value.strip(WHITE_SPACE)
    single_quoted = _SINGLE_QUOTED.fullmatch(value)
    if single_quoted:
        return single_quoted[1].replace("''", "'")
    if not value.startswith('"'):
        return value
    try:
        text = json.loads(value, strict=False)
    except ValueError:
        # people edit these pages, so quotes that do not close are taken off all the same
        return value.strip('"')
    if not isinstance(text, str):
        return value
    return text
