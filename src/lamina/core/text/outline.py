"""The compact text of one attachment or result: its structure, its first lines, and how much is left out.

Pure functions over strings, each linear in its input and never over its limit in characters. They know
nothing of segments, tokens, tags or files: a file's name is only a hint at its syntax. What a run of turns
comes down to is in `gist`.
"""

from __future__ import annotations

from lamina.core.text.characters import WHITE_SPACE, lower_ascii, split_words
from lamina.core.text.clipping import clip_lines, left_out_marker, shorten, truncate, truncate_bytes
from lamina.core.text.code import Signature, find_signatures, is_definition, is_numbered
from lamina.core.text.markdown_outline import (
    MOST,
    is_heading,
    mark_fenced_lines,
    outline_markdown,
    outline_sections,
)
from lamina.core.text.names import count_names, list_counted_names, without_names_in
from lamina.core.text.row_outlines import looks_tabular, outline_csv, outline_json

__all__ = (
    "MOST",
    "outline_code",
    "outline_markdown",
    "outline_text",
    "outline_with_names",
    "shorten",
    "truncate",
    "truncate_bytes",
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


def outline_text(text: str, *, limit: int, name: str = "") -> str:
    """`text` itself if it fits, else its structure within `limit` characters.

    The suffix of `name` says what structure to look for, otherwise the first lines do. If the outline is
    empty, or longer than it may be, whole lines from either end are shown instead.
    """
    if len(text) <= limit:
        return text
    syntax = _syntax_of_name(name) or _recognise_syntax(text)
    outlined = _outline_syntax(text, syntax, limit)
    if 0 < len(outlined) <= limit:
        return outlined
    return clip_lines(text, limit=limit)


def outline_with_names(text: str, *, limit: int, name: str = "") -> str:
    """`text` itself if it fits, else its structure and, in up to half of `limit`, the names that it lacks.

    Names that stand in the structure are not listed again: what they leave of the room shows more of it.
    """
    if len(text) <= limit:
        return text
    names = count_names(text)
    around = len(_NAMES_OPENING) + len("]")
    most = limit // 2 - around
    name_list = list_counted_names(names, limit=most)
    # Which names are missing depends on how much is shown, and that on how long their list is.
    for _ in range(2):
        if not name_list:
            return outline_text(text, limit=limit, name=name)
        structure = outline_text(text, limit=limit - around - len(name_list), name=name)
        name_list = list_counted_names(without_names_in(structure, names), limit=most)
        most = min(most, len(name_list))
    if not name_list:
        return structure
    return f"{structure}{_NAMES_OPENING}{name_list}]"


def outline_code(text: str, *, limit: int) -> str:
    """The signatures with their line numbers; if not all fit, the outermost ones.

    A row is `12: def load(path: str) -> Config:`, indented as in the source. With fewer than three
    definitions, head and tail of the text say more.
    """
    found_signatures = find_signatures(text)
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
    """The outline of a text in this syntax; "log" and everything unknown is shown by head and tail."""
    match syntax:
        case "code":
            return outline_code(text, limit=limit)
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
