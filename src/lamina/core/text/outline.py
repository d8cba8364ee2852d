"""The compact text of one attachment or result: its structure, a first look, and how much is left out.

Pure functions over strings, each linear in its input and never over its limit in characters. It knows
nothing of segments, tokens, tags or files: a name is only a hint at the sort of text, and sizes are said
in lines, rows or bytes, which no change of tokenizer can alter. What a run of turns says is `digest`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lamina.core.text.characters import WHITE_SPACE, is_blank, lower_ascii, split_words
from lamina.core.text.code import (
    brief,
    defines,
    first_table,
    is_numbered,
    keys_of,
    parsed,
    quoted,
    shape,
    signatures,
)
from lamina.core.text.names import names

PREVIEW, MOST = 200, 20
"""Characters of a section's preview, and sections shown, unless told otherwise."""

_PARSED = 2_000_000  # characters of JSON that are worth parsing for an outline
_SAMPLE_LINES, _SAMPLE_WIDTH = 200, 400
_LEAST = 24  # characters of text below which a marker would cost more than it says
_NAMES = "\n[names: "  # what a list of names begins with; "]" ends it
_LINE = 120  # characters that a line of a log has, where there is room for two

_MARKS = re.compile(
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u200d\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\U0001f3fb-\U0001f3ff]"
)
_ENDS = (". ", "! ", "? ", ".\n", "!\n", "?\n", "\u3002", "\uff01", "\uff1f", "\u061f ", "\u0964 ")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)", re.DOTALL)
_CELLS = (
    ("integer", re.compile(r"[+-]?\d{1,30}", re.ASCII)),
    ("number", re.compile(r"[+-]?\d{0,30}\.?\d{1,30}(?:[eE][+-]?\d{1,4})?", re.ASCII)),
    ("date", re.compile(r"\d{4}-\d\d-\d\d(?:[ T][\d:.+Z-]{1,32})?", re.ASCII)),
    ("boolean", re.compile(r"true|false", re.IGNORECASE | re.ASCII)),
)
_CODE = (
    "c cc cpp cs cxx go h hpp java js jsx kt kts lua m mjs php pl py pyi rb rs scala sh swift ts tsx vue zig"
)
_SORTS = {
    **dict.fromkeys(split_words(_CODE), "code"),
    **dict.fromkeys(("md", "markdown", "mdx"), "markdown"),
    **dict.fromkeys(("json", "ipynb", "geojson"), "json"),
    **dict.fromkeys(("tsv", "tab"), "tsv"),
    "csv": "csv",
    "log": "log",
}


def outline(text: str, *, limit: int, name: str = "") -> str:
    """`text` itself where it fits, else its structure within `limit` characters."""
    if len(text) <= limit:
        return text
    suffix = name.rpartition("/")[2].rpartition(".")
    sort = _SORTS.get(lower_ascii(suffix[2]) if suffix[1] else "") or _recognised(text)
    made = _OUTLINES[sort](text, limit)
    return made if 0 < len(made) <= limit else head_tail(text, limit=limit)


def indexed(text: str, *, limit: int, name: str = "") -> str:
    """`text` itself where it fits, else its structure and, in up to half of `limit`, the names in it."""
    if len(text) <= limit:
        return text
    found = names((text,), limit=limit // 2 - len(_NAMES) - 1)
    if not found:
        return outline(text, limit=limit, name=name)
    return f"{outline(text, limit=limit - len(_NAMES) - len(found) - 1, name=name)}{_NAMES}{found}]"


def shorten(text: str, limit: int) -> str:
    """The first `limit` characters, cut where a reader would pause, with an ellipsis of at most four more.

    A text that the ellipsis would not make shorter is returned as it is.
    """
    if len(text) <= limit:
        return text
    cut = text[: _edge(text, limit)]
    sentence, blank, space = max(map(cut.rfind, _ENDS)), cut.rfind("\n\n"), cut.rfind(" ")
    if 2 * sentence > limit:
        made = cut[: sentence + 1] + " ..."
    elif 2 * blank > limit:
        made = cut[:blank] + "\n\n..."
    elif 5 * space > 4 * limit:
        made = cut[:space] + " ..."
    else:
        made = cut + "..."
    return made if len(made) < len(text) else text


def clip(text: str, limit: int, *, unit: str = "bytes") -> str:
    """Head and tail of a text, with the size of what is left out between them."""
    if len(text) <= limit:
        return text
    room = limit - len(f" {_left_out(_size(text, unit), unit)} ")
    if room < _LEAST:
        return (
            text[: _edge(text, limit - 3)] + "..." if limit > _LEAST else text[: _edge(text, max(limit, 0))]
        )
    head, tail = _edge(text, room - room // 3), _edge(text, len(text) - room // 3, step=1)
    return f"{text[:head]} {_left_out(_size(text[head:tail], unit), unit)} {text[tail:]}"


def truncate(text: str, limit: int, *, name: str = "") -> str:
    """Head and tail of a file that can be read again; the head has what rounding leaves over."""
    if len(text) <= limit:
        return text
    marker = f"\n[... {f'truncated {name}'.rstrip(WHITE_SPACE)}; read file for full content ...]\n"
    room = limit - len(marker)
    if room <= 0:
        return text[: max(limit, 0)]
    tail = room // 5
    return text[: room - tail] + marker + text[len(text) - tail :]


def truncate_bytes(text: str, limit: int) -> str:
    """The longest prefix whose UTF-8 has at most `limit` bytes."""
    data = text[: max(limit, 0)].encode("utf-8", "surrogatepass")
    end = min(len(data), max(limit, 0))
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end].decode("utf-8", "surrogatepass")


def head_tail(text: str, *, limit: int) -> str:
    """Whole lines from the head and the tail, half of the room each: errors stand at the end."""
    if len(text) <= limit:
        return text
    lines = text.split("\n")
    room = limit - len(_left_out(len(lines), "lines")) - 1
    if len(lines) == 1 or room < 3 * _LEAST:
        return clip(text, limit)
    width = max(room // min(len(lines), 8), min(_LINE, room // 2)) - 1
    tail = _taken(reversed(lines), room // 2, width)[::-1]
    head = _taken(lines[: len(lines) - len(tail)], room - sum(len(line) + 1 for line in tail), width)
    left = len(lines) - len(head) - len(tail)
    return "\n".join([*head, *([_left_out(left, "lines")] if left else []), *tail])


def markdown(text: str, *, limit: int, preview: int = PREVIEW, most: int = MOST) -> str:
    """The headings in order, each with a preview of its section; byte-identical where nothing is cut.

    Previews shrink below `preview`, and sections go from the end, until the whole fits.
    """
    made = _by_section(text, limit, preview, most)
    short = made or shorten(text, min(4 * preview, max(limit - 4, 0)))
    return short if len(short) <= limit else clip(text, limit)


def code(text: str, *, limit: int) -> str:
    """The signatures with their line numbers; where not all fit, the outermost ones."""
    found = signatures(text)
    if len(text) <= limit or sum(not sign.documents for sign in found) < 3:
        return head_tail(text, limit=limit)
    total = text.count("\n") + 1
    room = limit - len(_left_out(total, "lines"))
    rows = {sign: f"{sign.line}: {' ' * sign.indent}{sign.text}" for sign in found}
    kept = set()
    for sign in sorted(found, key=lambda sign: (sign.documents, sign.indent)):
        room -= len(rows[sign]) + 1
        if room < 0:
            break
        kept.add(sign)
    shown = [rows[sign] for sign in found if sign in kept]
    return (
        "\n".join([*shown, _left_out(total - len(shown), "lines")]) if shown else head_tail(text, limit=limit)
    )


def json_rows(text: str, *, limit: int) -> str:
    """Keys and types, then the first rows; what does not parse is shown by head and tail."""
    value = parsed(text) if limit < len(text) <= _PARSED else None
    if isinstance(value, dict) and value:
        return _object(value, text, limit)
    if isinstance(value, list) and value:
        top = [f"JSON array of {_count(len(value), 'rows')}", clip(keys_of(value), limit // 3)]
        return _filled(top, map(brief, value), text, limit=limit, total=len(value), unit="rows")
    return head_tail(text, limit=limit)


def csv_rows(text: str, *, limit: int, delimiter: str = ",") -> str:
    """The number of rows and columns, what the columns hold, then the first rows as they stand."""
    rows = list(_unquoted(text.rstrip("\n").split("\n"), "\n"))
    if len(text) <= limit or len(rows) <= 1:
        return head_tail(text, limit=limit)
    names = list(_unquoted(rows[0].rstrip("\r").split(delimiter), delimiter))
    sample = [
        list(_unquoted(row.rstrip("\r").split(delimiter), delimiter)) for row in rows[1 : _SAMPLE_LINES + 1]
    ]
    held = "; ".join(f"{name}: {_held(sample, column)}" for column, name in enumerate(names))
    top = [
        f"{_count(len(rows) - 1, 'rows')}, {_count(len(names), 'columns')}",
        clip(f"first {_count(len(sample), 'rows')} hold {held}", limit // 3),
        clip(rows[0], limit // 4),
    ]
    return _filled(top, iter(rows[1:]), text, limit=limit, total=len(rows) - 1, unit="rows")


_OUTLINES: dict[str, Callable[[str, int], str]] = {
    "code": lambda text, limit: code(text, limit=limit),
    "markdown": lambda text, limit: _by_section(text, limit, limit, max(MOST, limit // 160)),
    "json": lambda text, limit: json_rows(text, limit=limit),
    "csv": lambda text, limit: csv_rows(text, limit=limit),
    "ssv": lambda text, limit: csv_rows(text, limit=limit, delimiter=";"),
    "tsv": lambda text, limit: csv_rows(text, limit=limit, delimiter="\t"),
    "log": lambda text, limit: head_tail(text, limit=limit),
}


def _recognised(text: str) -> str:
    """The sort of a text, by its first lines; "log" where nothing speaks for another."""
    first = text[:_SAMPLE_WIDTH].lstrip(WHITE_SPACE)[:1]
    last = text[-_SAMPLE_WIDTH:].rstrip(WHITE_SPACE)[-1:]
    if first in ("{", "[") and last in ("}", "]"):
        return "json"
    sample = [
        line[:_SAMPLE_WIDTH] for line in text[: _SAMPLE_LINES * _SAMPLE_WIDTH].split("\n", _SAMPLE_LINES)
    ]
    sample = sample[:_SAMPLE_LINES]
    if is_numbered(sample):
        return "code"
    tables = (("csv", ","), ("tsv", "\t"), ("ssv", ";"))
    table = next((sort for sort, delimiter in tables if _tabular(sample[:20], delimiter)), "")
    plain = [line for line, fenced in _fenced(sample) if not fenced]
    if table or sum(map(defines, plain)) >= max(3, len(plain) // 50):
        return table or "code"
    return "markdown" if sum(map(_is_heading, plain)) >= max(2, len(plain) // 50) else "log"


def _tabular(lines: Sequence[str], delimiter: str) -> bool:
    """At least three rows of the same three or more columns; the last line may be cut off."""
    widths = [len(list(_unquoted(line.split(delimiter), delimiter))) for line in lines[:-1]]
    return len(widths) >= 3 and widths[0] >= 3 and len(set(widths)) == 1


def _is_heading(line: str) -> bool:
    return _HEADING.match(line) is not None


def _by_section(text: str, limit: int, preview: int, most: int) -> str:
    """The sections that fit; "" for a text with no more than one heading, or where not even one fits."""
    sections = list(_sections(text))
    if sum(bool(heading) for heading, _ in sections) <= 1:
        return ""
    shown = _largest(min(most, len(sections)), lambda count: _fits(sections, count, 0, limit))
    width = _largest(max(min(preview, limit), 0), lambda size: _fits(sections, shown, size, limit))
    return _sketch(sections, shown, width) if shown else ""


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Heading lines, and what follows up to the next; the pairs, joined by newlines, give back the text."""
    heading, body = "", list[str]()
    for line, fenced in _fenced(text.split("\n")):
        if fenced or not _is_heading(line):
            body.append(line)
            continue
        if heading or body:
            yield heading, "\n".join([*([""] if heading else []), *body])
        heading, body = line, []
    yield heading, "\n".join([*([""] if heading else []), *body])


def _fenced(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each line with the fence that is open there, "" outside; the fence's own lines count as inside."""
    fence = ""
    for line in lines:
        before, fence = fence, _fence_after(line, fence)
        yield line, before or fence


def _fence_after(line: str, fence: str) -> str:
    match = _FENCE.match(line) if "```" in line or "~~~" in line else None
    if not match:
        return fence
    if fence:
        return "" if match[1].startswith(fence) and is_blank(match[2]) else fence
    return match[1] if match[1][0] == "~" or "`" not in match[2] else ""


def _fits(sections: Sequence[tuple[str, str]], shown: int, width: int, limit: int) -> bool:
    return len(_sketch(sections, shown, width)) <= limit


def _sketch(sections: Sequence[tuple[str, str]], shown: int, width: int) -> str:
    """The first `shown` sections, their bodies within `width`, and what is left out of them."""
    kept, left = list[str](), 0
    for heading, body in sections[:shown]:
        short = _preview(body, width)
        left += max(_size(body) - _size(short), 0)
        gap = "\n" if heading and short else ""
        kept.append(clip(heading, PREVIEW) + (body if short is body else f"{gap}{short}\n"))
    if len(sections) > shown:
        kept.append(f"[... {_count(len(sections) - shown, 'more sections')} omitted ...]")
    return "\n".join([*kept, _left_out(left, "bytes")] if left else kept)


def _preview(body: str, width: int) -> str:
    """The start of a section; a fence that the cut leaves open is closed."""
    if len(body) <= width:
        return body
    short = shorten(body.strip("\n"), width) if width >= _LEAST // 2 else ""
    fence = ""
    for line in short.split("\n"):
        fence = _fence_after(line, fence)
    return f"{short}\n{fence}" if fence else short


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, by bisection; 0 if none does."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        low, most = (middle, most) if fits(middle) else (low, middle - 1)
    return low


def _object(value: dict[str, Any], text: str, limit: int) -> str:
    """An object's keys; the rows of its first table too, where the keys leave room for them."""
    top = f"JSON object of {_count(len(value), 'keys')}"
    keys = [clip(f"  {quoted(key)}: {shape(item)}", max(limit // 6, _LEAST)) for key, item in value.items()]
    name, rows = first_table(value)
    if rows and sum(map(len, keys)) + len(keys) <= limit // 2:
        above = [top, *keys, clip(f"rows of {name}:", limit // 6)]
        return _filled(above, map(brief, rows), text, limit=limit, total=len(rows), unit="rows")
    return _filled([top], iter(keys), text, limit=limit, total=len(keys), unit="keys")


def _filled(top: Sequence[str], rows: Iterator[str], text: str, *, limit: int, total: int, unit: str) -> str:
    """`top`, as many rows as fit, and the number of those that do not."""
    shortened = f"[... shortened from {_count(_size(text), 'bytes')} ...]"
    room = limit - sum(len(line) + 1 for line in top) - max(len(_left_out(total, unit)), len(shortened))
    if room < 0:
        return head_tail(text, limit=limit)
    kept = _taken(rows, room, max(limit // 4, _LEAST))
    left = total - len(kept)
    return "\n".join([*top, *kept, _left_out(left, unit) if left else shortened])


def _unquoted(pieces: Iterable[str], glue: str) -> Iterator[str]:
    """Pieces of a split text, joined again where the split fell between quotes."""
    held, odd = list[str](), 0
    for piece in pieces:
        held.append(piece)
        odd ^= piece.count('"') & 1
        if not odd:
            yield glue.join(held)
            held.clear()
    if held:
        yield glue.join(held)


def _held(rows: Sequence[Sequence[str]], column: int) -> str:
    """What a column holds, in the words of `_CELLS`; "text" is everything."""
    cells = [row[column].strip('" ')[:100] for row in rows if column < len(row) and row[column].strip('" ')]
    if not cells:
        return "nothing"
    return next((word for word, pattern in _CELLS if all(map(pattern.fullmatch, cells))), "text")


def _taken(lines: Iterable[str], room: int, width: int) -> list[str]:
    """Lines, each within `width`, as long as they fit."""
    kept = []
    for line in lines:
        short = clip(line, width)
        room -= len(short) + 1
        if room < 0:
            break
        kept.append(short)
    return kept


def _left_out(count: int, unit: str) -> str:
    return f"[... {_count(count, unit)} left out ...]"


def _count(count: int, units: str) -> str:
    return f"{count:,} {units if count != 1 else units.removesuffix('s')}"


def _size(text: str, unit: str = "bytes") -> int:
    return len(text) if unit != "bytes" or text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _edge(text: str, at: int, *, step: int = -1) -> int:
    """The nearest place from `at` on that parts no character from its marks; `at` if none is near."""
    for place in range(at, at + 32 * step, step):
        if not 0 < place < len(text) or not (_MARKS.match(text, place) or text[place - 1] == "\u200d"):
            return min(max(place, 0), len(text))
    return at
