"""The compact text of one attachment or result: its structure, its first lines, and how much is left out.

Code is shown by its definitions, Markdown by its headings, JSON and CSV by what the columns hold. Pure
functions over strings, each linear in its input and never over its limit in characters. They know nothing of
segments, tokens, tags or files: a file's name is only a hint at its syntax. What a run of turns comes down to
is in `gist`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from lamina.core.text.characters import WHITE_SPACE, is_blank, lower_ascii, split_words
from lamina.core.text.clipping import (
    SMALLEST_PIECE,
    clip,
    clip_lines,
    count_units,
    left_out_marker,
    measure,
    shorten,
    take_lines,
)
from lamina.core.text.code import Signature, find_signatures, is_definition, is_numbered
from lamina.core.text.excerpts import count_names, list_first_names, read_names
from lamina.core.text.json_text import (
    abbreviate_value,
    describe_keys,
    describe_value,
    find_first_table,
    parse_json,
    quote_json,
)

_SAMPLE_LINES, _SAMPLE_WIDTH = 200, 400  # lines, and characters of each, by which a syntax is recognised
_FEWEST_SIGNATURES = 3  # definitions below which head and tail say more than an outline
_NAMES_OPENING = "\n[names: "  # what a list of names begins with; "]" ends it

_CODE_SUFFIXES = (
    "c cc cpp cs cxx go h hpp java js jsx kt kts lua m mjs php pl py pyi rb rs scala sh swift ts tsx vue zig"
)
_SYNTAX_BY_SUFFIX = {
    **dict.fromkeys(split_words(_CODE_SUFFIXES), "code"),
    **dict.fromkeys(("md", "markdown", "mdx"), "markdown"),
    **dict.fromkeys(("json", "ipynb", "geojson"), "json"),
    **dict.fromkeys(("tsv", "tab"), "tsv"),
    "csv": "csv",
    "log": "log",
}
_DELIMITERS = {"csv": ",", "tsv": "\t", "ssv": ";"}

_LONGEST_JSON = 2_000_000  # characters of JSON that are worth parsing for an outline
_SAMPLE_ROWS = 200  # rows that are read to say what a column holds
_LONGEST_CELL = 100  # characters of a cell that are read

# What a column may hold, tried in order.
_CELL_TYPES = (
    ("integer", re.compile(r"[+-]?\d{1,30}", re.ASCII)),  # -12
    ("number", re.compile(r"[+-]?\d{0,30}\.?\d{1,30}(?:[eE][+-]?\d{1,4})?", re.ASCII)),  # 1.5e-3
    ("date", re.compile(r"\d{4}-\d\d-\d\d(?:[ T][\d:.+Z-]{1,32})?", re.ASCII)),  # 2026-03-01T12:00:00Z
    ("boolean", re.compile(r"true|false", re.IGNORECASE | re.ASCII)),
)

PREVIEW, MOST = 200, 20
"""Characters of a section's preview, and sections shown, unless the caller says otherwise."""

_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")  # `## Usage`
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)", re.DOTALL)  # "```python", with "python" as the second group


def outline_text(text: str, *, limit: int, name: str = "") -> str:
    """`text` itself if it fits, else its structure within `limit` characters.

    The suffix of `name` says what structure to look for, otherwise the first lines do. If the outline is
    empty, or longer than it may be, whole lines from either end are shown instead.
    """
    return _Outline(text, name).write(limit)


def outline_with_names(text: str, *, limit: int, name: str = "") -> str:
    """`text` itself if it fits, else its structure and, in up to half of `limit`, the names that it lacks.

    Names that stand in the structure are not listed again: what they leave of the room shows more of it.
    """
    if len(text) <= limit:
        return text
    names = [name for name, _ in count_names(text).most_common()]
    around = len(_NAMES_OPENING) + len("]")
    most = limit // 2 - around
    name_list = list_first_names(names, limit=most, in_sight=())
    outline = _Outline(text, name)
    # Which names are missing depends on how much is shown, and that on how long their list is.
    for _ in range(2):
        if not name_list:
            return outline.write(limit)
        structure = outline.write(limit - around - len(name_list))
        name_list = list_first_names(names, limit=most, in_sight=read_names(structure))
        most = min(most, len(name_list))
    if not name_list:
        return structure
    return f"{structure}{_NAMES_OPENING}{name_list}]"


class _Outline:
    """The structure of a text, to be written in several sizes: what it is made of is looked for once."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name

    @cached_property
    def syntax(self) -> str:
        """The syntax by the suffix of its name, or by its first lines."""
        return _syntax_of_name(self.name) or _recognise_syntax(self.text)

    @cached_property
    def signatures(self) -> list[Signature]:
        """What it defines, if it is code."""
        return find_signatures(self.text)

    def write(self, limit: int) -> str:
        """The text itself if it fits, else its structure, or whole lines from either end."""
        if len(self.text) <= limit:
            return self.text
        if self.syntax == "code":
            outlined = _outline_signatures(self.text, self.signatures, limit)
        else:
            outlined = _outline_syntax(self.text, self.syntax, limit)
        if 0 < len(outlined) <= limit:
            return outlined
        return clip_lines(self.text, limit=limit)


def outline_code(text: str, *, limit: int) -> str:
    """The signatures with their line numbers; if not all fit, the outermost ones.

    A row is `12: def load(path: str) -> Config:`, indented as in the source. With fewer than three
    definitions, head and tail of the text say more.
    """
    return _outline_signatures(text, find_signatures(text), limit)


def _outline_signatures(text: str, found_signatures: list[Signature], limit: int) -> str:
    definitions = [signature for signature in found_signatures if not signature.documents]
    if len(text) <= limit or len(definitions) < _FEWEST_SIGNATURES:
        return clip_lines(text, limit=limit)
    total_lines = text.count("\n") + 1
    room = limit - len(left_out_marker(total_lines, "lines"))
    chosen = _choose_signatures(found_signatures, room)
    rows = [_print_signature(signature) for signature in found_signatures if signature in chosen]
    if not rows:
        return clip_lines(text, limit=limit)
    return "\n".join([*rows, left_out_marker(total_lines - len(rows), "lines")])


def _choose_signatures(candidates: list[Signature], room: int) -> set[Signature]:
    """The signatures that fit: definitions before docstrings, and those with the least indent first."""
    chosen: set[Signature] = set()
    for signature in sorted(candidates, key=lambda candidate: (candidate.documents, candidate.indent)):
        room -= len(_print_signature(signature)) + 1
        if room < 0:
            break
        chosen.add(signature)
    return chosen


def _print_signature(signature: Signature) -> str:
    """One row of the outline: the line number, and the signature indented as in the source."""
    indent = " " * signature.indent
    return f"{signature.line}: {indent}{signature.text}"


def _outline_syntax(text: str, syntax: str, limit: int) -> str:
    """The outline of what is no code; "log" and everything unknown is shown by head and tail."""
    match syntax:
        case "markdown":
            return outline_sections(text, limit, limit, max(MOST, limit // 160))
        case "json":
            return outline_json(text, limit=limit)
        case "csv" | "ssv" | "tsv":
            return outline_csv(text, limit=limit, delimiter=_DELIMITERS[syntax])
        case _:
            return clip_lines(text, limit=limit)


def _syntax_of_name(name: str) -> str | None:
    """The syntax that a file's suffix says; None if it has no suffix, or one that says nothing."""
    file_name = name.rpartition("/")[2]
    _, dot, suffix = file_name.rpartition(".")
    if not dot:
        return None
    return _SYNTAX_BY_SUFFIX.get(lower_ascii(suffix))


def _recognise_syntax(text: str) -> str:
    """The syntax of a text, by its first lines; "log" if they look like nothing else.

    The order matters: a numbered listing of a Markdown file is code, and a line of code in a fenced block
    does not make a page code.
    """
    if _has_json_ends(text):
        return "json"
    sample = _sample_lines(text)
    if is_numbered(sample):
        return "code"
    for syntax, delimiter in _DELIMITERS.items():
        if looks_tabular(sample[:20], delimiter):
            return syntax
    plain_lines = [line for line, is_fenced in mark_fenced_lines(sample) if not is_fenced]
    share = len(plain_lines) // 50
    if sum(map(is_definition, plain_lines)) >= max(3, share):
        return "code"
    if sum(map(is_heading, plain_lines)) >= max(2, share):
        return "markdown"
    return "log"


def _has_json_ends(text: str) -> bool:
    """Whether a text begins and ends with a bracket or brace.

    White space around it does not matter. Whether it is JSON is only known after parsing it.
    """
    first_character = text[:_SAMPLE_WIDTH].lstrip(WHITE_SPACE)[:1]
    last_character = text[-_SAMPLE_WIDTH:].rstrip(WHITE_SPACE)[-1:]
    return first_character in ("{", "[") and last_character in ("}", "]")


def _sample_lines(text: str) -> list[str]:
    """The starts of the first lines.

    A log may have lines of megabytes, and its syntax shows in the first characters.
    """
    start = text[: _SAMPLE_LINES * _SAMPLE_WIDTH]
    lines = start.split("\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
    return [line[:_SAMPLE_WIDTH] for line in lines]


def outline_json(text: str, *, limit: int) -> str:
    """Keys and types, then the first rows; a text that does not parse is shown by head and tail.

    The outline of an array of objects begins with `JSON array of 200 rows` and `"id": number; "name":
    string`.
    """
    if not limit < len(text) <= _LONGEST_JSON:
        return clip_lines(text, limit=limit)
    value = parse_json(text)
    if isinstance(value, dict) and value:
        return _outline_object(value, text, limit)
    if isinstance(value, list) and value:
        heading = [f"JSON array of {count_units(len(value), 'rows')}", clip(describe_keys(value), limit // 3)]
        rows = map(abbreviate_value, value)
        return _fill_rows(heading, rows, text, limit=limit, total=len(value), unit="rows")
    return clip_lines(text, limit=limit)


def _outline_object(value: dict[str, Any], text: str, limit: int) -> str:
    """An object's keys; the rows of its first table too, where the keys leave room for them.

    An answer of an API is often one object with a list in it, and the list is what was asked for.
    """
    title = f"JSON object of {count_units(len(value), 'keys')}"
    widest_key = max(limit // 6, SMALLEST_PIECE)
    keys = [clip(f"  {quote_json(key)}: {describe_value(item)}", widest_key) for key, item in value.items()]
    table = find_first_table(value)
    length_of_keys = sum(len(key) for key in keys) + len(keys)
    if not table.rows or length_of_keys > limit // 2:
        return _fill_rows([title], keys, text, limit=limit, total=len(keys), unit="keys")
    heading = [title, *keys, clip(f"rows of {table.path}:", limit // 6)]
    rows = map(abbreviate_value, table.rows)
    return _fill_rows(heading, rows, text, limit=limit, total=len(table.rows), unit="rows")


def outline_csv(text: str, *, limit: int, delimiter: str = ",") -> str:
    """The number of rows and columns, what the columns hold, then the first rows as they are."""
    rows = list(_join_quoted(text.rstrip("\n").split("\n"), "\n"))
    if len(text) <= limit or len(rows) <= 1:
        return clip_lines(text, limit=limit)
    columns = _split_row(rows[0], delimiter)
    sample = [_split_row(row, delimiter) for row in rows[1 : _SAMPLE_ROWS + 1]]
    descriptions = [f"{name}: {_describe_column(sample, index)}" for index, name in enumerate(columns)]
    heading = [
        f"{count_units(len(rows) - 1, 'rows')}, {count_units(len(columns), 'columns')}",
        clip(f"first {count_units(len(sample), 'rows')} hold {'; '.join(descriptions)}", limit // 3),
        clip(rows[0], limit // 4),
    ]
    return _fill_rows(heading, rows[1:], text, limit=limit, total=len(rows) - 1, unit="rows")


def looks_tabular(lines: Sequence[str], delimiter: str) -> bool:
    """At least three rows of the same three or more columns; the last line may be cut off.

    A comma between quotes is no border of a column: `1,"a, b",2` has three of them.
    """
    widths = [len(list(_join_quoted(line.split(delimiter), delimiter))) for line in lines[:-1]]
    if len(widths) < 3 or widths[0] < 3:
        return False
    return len(set(widths)) == 1


def _split_row(row: str, delimiter: str) -> list[str]:
    """The cells of one row; a delimiter between quotes does not divide them."""
    return list(_join_quoted(row.rstrip("\r").split(delimiter), delimiter))


def _join_quoted(pieces: Iterable[str], glue: str) -> Iterator[str]:
    """Pieces of a split text, joined again where the split fell between quotes: `"a` and `b"` as `"a,b"`."""
    open_pieces: list[str] = []
    quotes = 0
    for piece in pieces:
        open_pieces.append(piece)
        quotes += piece.count('"')
        if quotes % 2 == 0:
            yield glue.join(open_pieces)
            open_pieces.clear()
    if open_pieces:
        yield glue.join(open_pieces)


def _describe_column(rows: Sequence[Sequence[str]], column: int) -> str:
    """What a column holds: the first type of `_CELL_TYPES` that all its cells have, else "text".

    Empty cells say nothing. A column of `12`, an empty cell and `7` holds integers.
    """
    cells = [row[column].strip('" ') for row in rows if column < len(row)]
    values = {cell[:_LONGEST_CELL] for cell in cells} - {""}
    if not values:
        return "nothing"
    for type_name, pattern in _CELL_TYPES:
        if all(pattern.fullmatch(value) for value in values):
            return type_name
    return "text"


def _fill_rows(
    heading: Sequence[str], rows: Iterable[str], text: str, *, limit: int, total: int, unit: str
) -> str:
    """The heading, as many rows as fit, and the number of those that do not."""
    shortened_marker = f"[... shortened from {count_units(measure(text), 'bytes')} ...]"
    longest_marker = max(len(left_out_marker(total, unit)), len(shortened_marker))
    room = limit - sum(len(line) + 1 for line in heading) - longest_marker
    if room < 0:
        return clip_lines(text, limit=limit)
    shown_rows = take_lines(rows, room, max(limit // 4, SMALLEST_PIECE))
    left_out = total - len(shown_rows)
    last_line = left_out_marker(left_out, unit) if left_out else shortened_marker
    return "\n".join([*heading, *shown_rows, last_line])


class _Section(NamedTuple):
    """A heading line, and everything up to the next one; joined by newlines, the sections are the text."""

    heading: str
    body: str


def outline_markdown(text: str, *, limit: int, preview: int = PREVIEW, most: int = MOST) -> str:
    """The headings in order, each with a preview of its section; byte-identical where nothing is cut.

    Previews shrink below `preview`, and sections go from the end, until the whole fits.
    """
    outlined = outline_sections(text, limit, preview, most)
    if not outlined:
        outlined = shorten(text, min(4 * preview, max(limit - 4, 0)))
    if len(outlined) <= limit:
        return outlined
    return clip(text, limit)


def outline_sections(text: str, limit: int, preview: int, most: int) -> str:
    """The sections that fit; "" for a text with no more than one heading, or if not even one section fits."""
    sections = list(_split_sections(text))
    headings = [section.heading for section in sections if section.heading]
    if len(headings) <= 1:
        return ""

    def fits(section_count: int, width: int) -> bool:
        return len(_sketch_sections(sections, section_count, width)) <= limit

    section_count = _find_largest(min(most, len(sections)), lambda count: fits(count, 0))
    if not section_count:
        return ""
    width = _find_largest(max(min(preview, limit), 0), lambda size: fits(section_count, size))
    return _sketch_sections(sections, section_count, width)


def is_heading(line: str) -> bool:
    """Whether a line is a Markdown heading."""
    return _HEADING.match(line) is not None


def mark_fenced_lines(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is part of a fenced block; the fence's own lines are.

    A `# comment` inside of a fenced block is no heading.
    """
    fence = ""
    for line in lines:
        fence_before = fence
        fence = _fence_after(line, fence)
        yield line, bool(fence_before or fence)


def _split_sections(text: str) -> Iterator[_Section]:
    """The sections of a text, in order; the first one has no heading if text stands before all headings."""
    heading = ""
    body_lines: list[str] = []
    for line, is_fenced in mark_fenced_lines(text.split("\n")):
        if is_fenced or not is_heading(line):
            body_lines.append(line)
            continue
        if heading or body_lines:
            yield _Section(heading, "\n".join(body_lines))
        heading = line
        body_lines = [""]  # so the body begins with the newline that ends the heading
    yield _Section(heading, "\n".join(body_lines))


def _fence_after(line: str, fence: str) -> str:
    """The fence that is open after a line, "" outside of any.

    `fence` is the one that is open before it. Inside of "~~~~", neither "~~~" nor "~~~~ x" is its end.
    """
    if "```" not in line and "~~~" not in line:
        return fence
    match = _FENCE.match(line)
    if match is None:
        return fence
    marks, info = match[1], match[2]
    if fence:
        closes_fence = marks.startswith(fence) and is_blank(info)
        return "" if closes_fence else fence
    # "```a```" on one line is a piece of text, not a fence.
    is_inline_code = marks.startswith("`") and "`" in info
    return "" if is_inline_code else marks


def _sketch_sections(sections: Sequence[_Section], section_count: int, width: int) -> str:
    """The first sections, their bodies within `width`, and how much is left out of them."""
    pieces: list[str] = []
    left_out_bytes = 0
    for heading, body in sections[:section_count]:
        preview = _preview_body(body, width)
        left_out_bytes += max(measure(body) - measure(preview), 0)
        pieces.append(clip(heading, PREVIEW) + _join_preview(heading, body, preview))
    hidden_sections = len(sections) - section_count
    if hidden_sections > 0:
        pieces.append(f"[... {count_units(hidden_sections, 'more sections')} omitted ...]")
    if left_out_bytes:
        pieces.append(left_out_marker(left_out_bytes, "bytes"))
    return "\n".join(pieces)


def _join_preview(heading: str, body: str, preview: str) -> str:
    """What follows a heading: its whole body, or the preview on lines of its own.

    A whole body begins with the newline that ends its heading. A preview has none, so one is added.
    """
    if preview is body:
        return body
    gap = "\n" if heading and preview else ""
    return f"{gap}{preview}\n"


def _preview_body(body: str, width: int) -> str:
    """The start of a section; a fence that the cut leaves open is closed.

    If the whole body fits, the very same object is returned.
    """
    if len(body) <= width:
        return body
    preview = ""
    if width >= SMALLEST_PIECE // 2:
        preview = shorten(body.strip("\n"), width)
    fence = ""
    for line in preview.split("\n"):
        fence = _fence_after(line, fence)
    if fence:
        return f"{preview}\n{fence}"
    return preview


def _find_largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, by bisection; 0 if none does."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        if fits(middle):
            low = middle
        else:
            most = middle - 1
    return low
