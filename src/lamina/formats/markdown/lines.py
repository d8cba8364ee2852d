r"""Writes and reads the readable lines of a chat page: messages, what they refer to, and when they were sent.

    **user**: Summarise this
    [Context: Notes: docs/spec.md | URLs: https://example.org]
    [Timestamp: 2025/01/31 12:00:00]

A line of a message's text that looks like one of these gets a backslash in front; if it has backslashes there
already, it gets one more. In a list of names, a backslash stands before a character that would end a name.
Ordinary chats need neither.

`exact=False` reads pages of the system that this format comes from. That system escapes nothing and strips
white space. This module knows no segments.

A page that another system saved names the context of each message but does not contain it. The names are
stored with the message, in its meta, until `rebuild` replaces them by segments. Links are left alone unless
the caller allows them. Nothing here reads files or the network: the caller's function does.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from lamina.core.text.characters import WHITE_SPACE
from lamina.core.values import Segment

NO_TIME = "Unknown time"
GROUPS: Mapping[str, str] = {
    "note": "Notes",
    "url": "URLs",
    "web_tab": "Web Tabs",
    "tag": "Tags",
    "folder": "Folders",
}
"""The sorts of things that a message can refer to, in the order and with the titles of the context line."""

_SORTS = {title: sort for sort, title in GROUPS.items()}

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
    lines = chunk.rstrip(WHITE_SPACE).split("\n")
    time = _pop_bracketed(lines, "[Timestamp: ")
    context = _pop_bracketed(lines, "[Context: ")
    at = ""
    if time != NO_TIME:
        at = spelling.read_time(time)
    references: list[Mention] = []
    for group in spelling.split(context, " | "):
        title, _, names = group.partition(": ")
        title = title.strip(WHITE_SPACE)
        # an unknown title is a sort of its own, so that whoever reads the page can say that it was not
        # brought back
        sort = _SORTS.get(title, title)
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
    bracketed = last_line.rstrip(WHITE_SPACE)
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
    return text.strip(WHITE_SPACE)


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
