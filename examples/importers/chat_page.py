r"""Writes and reads chats as the Markdown pages of obsidian-copilot, with the whole log in a comment.

    ---
    epoch: 1729873880000
    lamina: 1
    ---
    <!-- lamina:1
    {"segment": ...}
    -->

    **user**: Summarise this
    [Context: Notes: docs/spec.md | URLs: https://example.org]
    [Timestamp: 2025/01/31 12:00:00]

The comment holds every segment as `lamina.formats.codec` writes it, so reading a page gives back the log that
it was written from. It stands before the first message, where that system looks for nothing. If somebody has
edited the readable part since, the readable part counts; only the attachments that it refers to are still
taken from the comment. A comment can hold text that the page does not show: pass `hidden=False` to read a
page by a stranger. Of YAML only words, numbers and lists of words are front matter.

A line of a message's text that looks like a line of the page gets a backslash in front; if it has backslashes
there already, it gets one more. In a list of names, a backslash stands before a character that would end a
name. Ordinary chats need neither. Pages of that system itself escape nothing (`exact=False`).

A page that another system saved names the context of each message but does not contain it. The names are
stored with the message, in its meta, until `rebuild` replaces them by segments. Links are left alone unless
the caller allows them. Nothing here reads files or the network: the caller's function does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from os import PathLike
from typing import Any, NamedTuple

import msgspec

from lamina import BadInput, Role, Segment
from lamina.context.files import files
from lamina.core import Image, Text
from lamina.formats.codec import decode, encode
from lamina.segments import assistant, user
from lamina.workspace import Workspace

__all__ = [
    "MarkdownChat",
    "Mention",
    "find_below",
    "note_path",
    "read",
    "rebuild",
    "write",
]

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

NO_TIME = "Unknown time"
GROUPS: Mapping[str, str] = {
    "note": "Notes",
    "url": "URLs",
    "web_tab": "Web Tabs",
    "tag": "Tags",
    "folder": "Folders",
}
"""The sorts of things that a message can refer to, in the order and with the titles of the context line."""

_SORTS_BY_TITLE = {title: sort for sort, title in GROUPS.items()}

_HEAD = re.compile(r"^\*\*(user|ai)\*\*:(?: |(?=\n|\Z))", re.MULTILINE)  # "**ai**: Hello", or "**ai**:" alone
_FOREIGN_HEAD = re.compile(r"^\*\*(user|ai)\*\*: ", re.MULTILINE)

# A line of text that looks like a line of the page: "**user**: so", "\[Context: a]", "\\[Timestamp: b]".
_MARK = r"\*\*(?:user|ai)\*\*:|\[Context: |\[Timestamp: "
_UNESCAPED_LINE = re.compile(rf"^(?=\\*(?:{_MARK}))", re.MULTILINE)
_ESCAPED_LINE = re.compile(rf"^\\(?=\\*(?:{_MARK}))", re.MULTILINE)

# What would end a name or its line: a backslash, "|", ", ", a space at either end, an end of line.
_ENDS_NAME = re.compile(r"\\|\||,(?= |\Z)|^ | \Z|\n|\r")
_CODES = {"\n": "\\n", "\r": "\\r", " ": "\\s"}
_LETTERS = {"n": "\n", "r": "\r", "s": " "}

MENTIONS = "mentions"
LINKS = frozenset(("url", "web_tab"))


class Mention(NamedTuple):
    """One thing that a message refers to: a note, url, web_tab, tag or folder, and its name."""

    sort: str
    name: str


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a page: who sent it, its text, what it refers to, and when."""

    sender: str
    text: str
    references: tuple[Mention, ...] = ()
    at: str = ""


def format_messages(messages: Iterable[Message]) -> str:
    """Write messages as the readable part of a page."""
    return "\n\n".join(_format_message(message) for message in messages)


def parse_messages(text: str, *, exact: bool) -> tuple[str, list[Message]]:
    """Split a page into the text above its first message, and its messages.

    Each message goes on up to the next line that begins one.
    """
    spelling = _EXACT if exact else _FOREIGN
    heads = list(spelling.head.finditer(text))
    if not heads:
        return text, []
    ends = [head.start() for head in heads[1:]]
    ends.append(len(text))
    messages: list[Message] = []
    for head, end in zip(heads, ends, strict=True):
        messages.append(_parse_message(head[1], text[head.end() : end], spelling))
    return text[: heads[0].start()], messages


def _format_message(message: Message) -> str:
    """A message as the lines at the top of this module show it."""
    lines = [f"**{message.sender}**: " + _UNESCAPED_LINE.sub(r"\\", message.text)]
    if message.references:
        lines.append(f"[Context: {_format_references(message.references)}]")
    lines.append(f"[Timestamp: {_format_time(message.at)}]")
    return "\n".join(lines)


def _format_references(references: Iterable[Mention]) -> str:
    """What a message refers to, by sort: `Notes: docs/spec.md, a.md | URLs: https://example.org`.

    Sorts stand in the order of `GROUPS`, and those of another program after them, under their own title. A
    sort that nothing is of is left out.
    """
    names_by_sort: dict[str, list[str]] = {sort: [] for sort in GROUPS}
    for sort, name in references:
        names_by_sort.setdefault(sort, []).append(_escape_name(name))
    groups: list[str] = []
    for sort, names in names_by_sort.items():
        if names:
            groups.append(f"{GROUPS.get(sort, sort)}: {', '.join(names)}")
    return " | ".join(groups)


def _format_time(at: str) -> str:
    """When a message was sent, or that nobody knows.

    `2025/01/31 12:00:00`, or `Unknown time`.
    """
    if not at:
        return NO_TIME
    if at == NO_TIME:  # a real time that happens to read like a missing one
        return f"\\{at}"
    return _escape_name(at)


def _parse_message(sender: str, chunk: str, spelling: _PageSpelling) -> Message:
    """A message without its first words, `**user**:`. Its last lines say what it refers to, and when.

    `[Context: Notes: a.md, b.md]` refers to two notes. A group whose title is not known is a sort of its own,
    so that whoever reads the page can say that it was not brought back.
    """
    lines = chunk.rstrip().split("\n")
    time = _pop_bracketed(lines, "[Timestamp: ")
    context = _pop_bracketed(lines, "[Context: ")
    at = ""
    if time != NO_TIME:
        at = spelling.read_time(time)
    references: list[Mention] = []
    for group in spelling.split(context, " | "):
        title, _, names = group.partition(": ")
        title = title.strip()
        # an unknown title is a sort of its own, so that whoever reads the page can say that it was not
        # brought back
        sort = _SORTS_BY_TITLE.get(title, title)
        if sort:
            all_names = map(spelling.read_name, spelling.split(names, ", "))
            references += [Mention(sort, name) for name in all_names if name]
    text = spelling.read_text("\n".join(lines))
    return Message(sender=sender, text=text, references=tuple(references), at=at)


def _pop_bracketed(lines: list[str], start: str) -> str:
    """Take the last line off if it begins with `start` and ends with `]`, and return what is between.

    Without such a line it is "", as it is for a line with nothing between.
    """
    last_line = "".join(lines[-1:])
    bracketed = last_line.rstrip()
    if not last_line.startswith(start) or not bracketed.endswith("]"):
        return ""
    lines.pop()
    return bracketed[len(start) : -1]


def _split_unescaped(text: str, separator: str) -> list[str]:
    r"""The pieces between separators; `a\, b, c` at ", " has two: a separator after a backslash is text."""
    pieces: list[str] = []
    start = 0
    for match in re.finditer(rf"\\.|{re.escape(separator)}", text, re.DOTALL):
        if match[0] == separator:
            pieces.append(text[start : match.start()])
            start = match.end()
    pieces.append(text[start:])
    return pieces


def _escape_name(name: str) -> str:
    r"""A name that stays on its line and in its place in a list.

    `a | b` becomes `a \| b`, so that it is not read as two groups.
    """
    return _ENDS_NAME.sub(lambda match: _CODES.get(match[0], f"\\{match[0]}"), name)


def _unescape_name(name: str) -> str:
    return re.sub(r"\\(.)", lambda match: _LETTERS.get(match[1], match[1]), name, flags=re.DOTALL)


def _unescape_text(text: str) -> str:
    """The text of a message, without the backslashes before lines that look like lines of the page."""
    return _ESCAPED_LINE.sub("", text)


def _strip(text: str) -> str:
    return text.strip()


class _PageSpelling(NamedTuple):
    """How the messages of a page are told apart, and how their lists, names, times and texts are read."""

    head: re.Pattern[str]
    split: Callable[[str, str], list[str]]
    read_name: Callable[[str], str]
    read_time: Callable[[str], str]
    read_text: Callable[[str], str]


_EXACT = _PageSpelling(_HEAD, _split_unescaped, _unescape_name, _unescape_name, _unescape_text)
"""As this module writes a page."""

_FOREIGN = _PageSpelling(_FOREIGN_HEAD, str.split, _strip, str, _strip)
"""As the system writes it that this format comes from."""


Finder = Callable[[Mention], Awaitable[Iterable[Segment]]]
"""Gives the segments that a mention refers to; none if it cannot be resolved."""


def mentions(segment: Segment) -> tuple[Mention, ...]:
    """What this message refers to and the log does not hold."""
    pairs = segment.meta.get(MENTIONS)
    if not isinstance(pairs, list | tuple):
        return ()
    return tuple(Mention(*map(str, pair)) for pair in pairs)


def replace_mentions(segment: Segment, new_mentions: Iterable[Mention]) -> Segment:
    """The segment with these mentions in place of its own."""
    pairs = [list(mention) for mention in new_mentions]
    meta = dict(segment.meta)
    meta.pop(MENTIONS, None)
    if pairs:
        meta[MENTIONS] = pairs
    return msgspec.structs.replace(segment, meta=meta)


def find_below(folder: str | PathLike[str]) -> Finder:
    """Find notes, folders and tags among the files of a folder, and nothing outside of it."""

    async def find(mention: Mention) -> Iterable[Segment]:
        if mention.sort in LINKS:
            return ()
        if mention.sort == "folder":
            return await files(folder, folders=[mention.name])("", None)
        if mention.sort == "tag":
            return await files(folder, tags=[mention.name])("", None)
        with closing(Workspace(folder)) as space:
            path = note_path(mention.name, [item.path for item in space.walk() if not item.why])
        if path is None:  # then the name is plain words
            return ()
        return await files(folder, paths=[path])("", None)

    return find


async def rebuild(log: Iterable[Segment], find: Finder, *, links: bool = False) -> tuple[Segment, ...]:
    """The log with the context of its messages in front of them.

    `find` resolves each mention; one that it cannot resolve stays with its message. Links are passed to
    `find` only if `links` is true.
    """
    new_log: list[Segment] = []
    for segment in log:
        unresolved: list[Mention] = []
        for mention in mentions(segment):
            context: tuple[Segment, ...] = ()
            if links or mention.sort not in LINKS:
                context = tuple(await find(mention))
            if not context:
                unresolved.append(mention)
            new_log += context
        if MENTIONS in segment.meta:
            segment = replace_mentions(segment, unresolved)  # noqa: PLW2901 - the same message, less mentions
        new_log.append(segment)
    return tuple(new_log)


def note_path(name: str, paths: Iterable[str]) -> str | None:
    """The path that a note's name refers to: the path itself, else the only note of that name, else None.

    `spec` refers to `docs/spec.md`, unless there is another `spec.md`.
    """
    all_paths = tuple(paths)
    if name in all_paths:
        return name
    stem = _note_stem(name)
    matches = [path for path in all_paths if _note_stem(path) == stem]
    if len(matches) != 1:
        return None
    return matches[0]


def _note_stem(path: str) -> str:
    """The name of a note without folder and ending: `spec` of `docs/spec.md`."""
    return path.rpartition("/")[2].removesuffix(".md")


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
        _, messages = parse_messages(rest.strip(), exact=False)
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
    lines: list[str] = []
    for part in segment.parts:
        if isinstance(part, Text):
            lines.append(part.text)
        elif isinstance(part, Image):
            lines.append("[image]")
    return Message(sender=sender, text="\n".join(lines), references=tuple(references), at=segment.at)


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
    names = [segment.attrs.get(attribute, "") for attribute in ("path", "url", "source", "name", "title")]
    name = next(filter(None, names), segment.key)
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
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def _format_comment(chat: MarkdownChat) -> str:
    """The whole conversation as a comment, which a reader of the page does not see."""
    records = [msgspec.json.encode({"lamina": VERSION, "state": chat.state}, order="sorted").decode()]
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
        if not colon or not name.strip() or line.startswith(" "):
            continue
        items = []
        if not value.strip():
            fields[name.strip()] = items
        else:
            fields[name.strip()] = _unquote(value)
    return fields


def _quote(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _unquote(value: str) -> str:
    """A value without its quotes, which are those of YAML: `'it''s'`, `"it's"`, or none."""
    value = value.strip()
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
