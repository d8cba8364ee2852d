"""The lines of a chat page: messages that cannot begin another, context lists, front matter.

    **user**: Summarise this
    [Context: Notes: docs/spec.md | URLs: https://example.org]
    [Timestamp: 2025/01/31 12:00:00]

A line of a message that looks like one of these gets a backslash in front; one that has backslashes there
already gets one more. In a list, a backslash stands before what would end a name. Ordinary chats show
neither. `exact=False` reads pages of the system that the format comes from, which escapes nothing and strips
what it reads. This file knows no segments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

import msgspec

from lamina.core.text.characters import WHITE_SPACE, is_blank

NO_TIME = "Unknown time"
GROUPS: Mapping[str, str] = {
    "note": "Notes",
    "url": "URLs",
    "web_tab": "Web Tabs",
    "tag": "Tags",
    "folder": "Folders",
}
"""What a message can refer to, in the order and under the names in which it is listed."""

_SORTS = {group: sort for sort, group in GROUPS.items()}
_HEAD = re.compile(r"^\*\*(user|ai)\*\*:(?: |(?=\n|\Z))", re.MULTILINE)
_FOREIGN_HEAD = re.compile(r"^\*\*(user|ai)\*\*: ", re.MULTILINE)
_MARK = r"\*\*(?:user|ai)\*\*:|\[Context: |\[Timestamp: "
_PLAIN = re.compile(rf"^(?=\\*(?:{_MARK}))", re.MULTILINE)
_ESCAPED = re.compile(rf"^\\(?=\\*(?:{_MARK}))", re.MULTILINE)
_ENDS_NAME = re.compile(r"\\|\||,(?= |\Z)|^ | \Z|\n|\r")
_CODES = {"\n": "\\n", "\r": "\\r", " ": "\\s"}
_LETTERS = {"n": "\n", "r": "\r", "s": " "}
_FRONT = re.compile(r"---\n((?:[^\n]*\n)*?)---(?:\n|\Z)")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a page: who, what, what it refers to as (sort, name), and when."""

    sender: str
    text: str
    refers: tuple[tuple[str, str], ...] = ()
    at: str = ""


def body(messages: Iterable[Message]) -> str:
    """The readable part of a page."""
    return "\n\n".join(_lines(message) for message in messages)


def messages(text: str, *, exact: bool) -> tuple[str, list[Message]]:
    """What stands before the first message, and the messages."""
    heads = list((_HEAD if exact else _FOREIGN_HEAD).finditer(text))
    ends = [*(head.start() for head in heads), len(text)][1:]
    found = [
        _message(head[1], text[head.end() : end], exact=exact) for head, end in zip(heads, ends, strict=True)
    ]
    return text[: heads[0].start()] if heads else text, found


def _lines(message: Message) -> str:
    lines = [f"**{message.sender}**: " + _PLAIN.sub(r"\\", message.text)]
    if message.refers:
        lines.append(f"[Context: {_listed(message.refers)}]")
    lines.append(f"[Timestamp: {_time(message.at)}]")
    return "\n".join(lines)


def _time(at: str) -> str:
    return f"\\{at}" if at == NO_TIME else _name(at) or NO_TIME


def _message(sender: str, chunk: str, *, exact: bool) -> Message:
    lines = (chunk.rstrip(WHITE_SPACE) if exact else chunk.strip(WHITE_SPACE)).split("\n")
    at, refers = "", tuple[tuple[str, str], ...]()
    if (said := _bracketed(lines, "[Timestamp: ")) is not None:
        at = "" if said == NO_TIME else _unnamed(said) if exact else said
    if (said := _bracketed(lines, "[Context: ")) is not None:
        refers = _refers(said, exact=exact)
    text = "\n".join(lines)
    return Message(
        sender=sender, text=_ESCAPED.sub("", text) if exact else text.strip(WHITE_SPACE), refers=refers, at=at
    )


def _bracketed(lines: list[str], start: str) -> str | None:
    """What the last line holds, if it is one of these; it is taken off."""
    if not lines or not lines[-1].startswith(start) or not lines[-1].rstrip(WHITE_SPACE).endswith("]"):
        return None
    return lines.pop().rstrip(WHITE_SPACE)[len(start) : -1]


def _listed(refers: Iterable[tuple[str, str]]) -> str:
    named: dict[str, list[str]] = {sort: [] for sort in GROUPS}
    for sort, name in refers:
        named[sort].append(_name(name))
    return " | ".join(f"{GROUPS[sort]}: {', '.join(names)}" for sort, names in named.items() if names)


def _refers(text: str, *, exact: bool) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for group in _split(text, " | ", exact=exact):
        title, _, names = group.partition(": ")
        if (sort := _SORTS.get(title.strip(WHITE_SPACE))) is None:
            continue
        pieces = _split(names, ", ", exact=exact)
        named = (_unnamed(piece) if exact else piece.strip(WHITE_SPACE) for piece in pieces)
        found += [(sort, name) for name in named if name]
    return tuple(found)


def _split(text: str, mark: str, *, exact: bool) -> list[str]:
    """The pieces between marks, except where a backslash stands before one."""
    if not exact:
        return text.split(mark)
    escaped = rf"\\.|{re.escape(mark)}"
    cuts = [match for match in re.finditer(escaped, text, re.DOTALL) if match[0] == mark]
    starts, ends = [0, *(cut.end() for cut in cuts)], [*(cut.start() for cut in cuts), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _name(name: str) -> str:
    """A name that stays on its line and in its place in a list."""
    return _ENDS_NAME.sub(lambda match: _CODES.get(match[0], f"\\{match[0]}"), name)


def _unnamed(piece: str) -> str:
    return re.sub(r"\\(.)", lambda match: _LETTERS.get(match[1], match[1]), piece, flags=re.DOTALL)


def front(fields: Mapping[str, str | int | Iterable[str]]) -> str:
    """Front matter: words in quotes, so that no value can end it or begin another."""
    lines = ["---"]
    for name, value in fields.items():
        if isinstance(value, str | int):
            lines.append(f"{name}: {value if isinstance(value, int) else _quoted(value)}")
        else:
            lines += [f"{name}:", *(f"  - {_quoted(item)}" for item in value)]
    return "\n".join([*lines, "---", ""])


def parted(page: str) -> tuple[dict[str, str | list[str]], str]:
    """The front matter of a page, if it begins with one, and the rest. Other lines are skipped."""
    match = _FRONT.match(page)
    fields: dict[str, str | list[str]] = {}
    items: list[str] = []
    for line in match[1].split("\n") if match else ():
        name, colon, value = line.partition(":")
        if line.startswith(("  - ", "- ")):
            items.append(_unquoted(line.partition("- ")[2]))
        elif colon and not is_blank(name) and not line.startswith(" "):
            items = []
            fields[name.strip(WHITE_SPACE)] = items if is_blank(value) else _unquoted(value)
    return fields, page[match.end() :] if match else page


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _unquoted(value: str) -> str:
    value = value.strip(WHITE_SPACE)
    if value[:1] == value[-1:] == "'" and len(value) > 1:
        return value[1:-1].replace("''", "'")
    if not value.startswith('"'):
        return value
    try:
        plain = json.loads(value, strict=False)
    except ValueError:
        return value.strip('"')
    return plain if isinstance(plain, str) else value
