"""Which lines of source code define something.

Source code is read by rules over single lines, with no parser and no language known by name: a keyword
followed by a name, an arrow function bound to a name, or a line shaped like the head of a C-like function.
Each line is looked at once, and only its first characters, so a definition may be missed. How many of the
definitions are shown is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, is_letter, split_words
from lamina.core.text.known_words import KnownWords

_WIDTH = 200  # characters of a line that are read
_MOST_CONTINUATIONS = 6  # lines that one signature may go on for

_MODIFIERS = frozenset(
    "abstract async const data declare default export extern final inline internal let open override partial "
    "private protected pub pub(crate) pub(super) public sealed static unsafe var virtual".split()
)
_KEYWORDS = frozenset(
    "class def enum extension fn fun func function impl interface macro_rules! mod module namespace object "
    "protocol record struct trait type union".split()
)
_BINDERS = frozenset(("const", "let", "var"))
_CONTROL = frozenset(
    "assert await case catch do elif else except finally for foreach if lock new raise return sizeof super "
    "switch throw try using when while with yield".split()
)
_KEYWORD = re.compile(r"([a-z_]+!?)(?:[<*].*)?", re.ASCII)  # `def`, `impl<T>`, `function*`
_ARROW = re.compile(r"(?:async\b ?)?(?:function\b|\(|[\w$]+ ?=>)", re.ASCII)  # `(a, b) => …`, `async x => …`
_TYPE_AND_NAME = re.compile(r"[\w \t*&:<>,\[\]~.]+", re.ASCII)  # `static int *find` before its bracket
_NAME = re.compile(r"[*&~]*[A-Za-z_$#][\w$:~]*", re.ASCII)  # `*find`, `Foo::bar`, `~Foo`
_NUMBERED = re.compile(r" {0,7}(\d{1,7})(?:\t|→|\| ?|: )", re.ASCII)  # `   12\tdef f():`, `12: def f():`
_DOCSTRING = re.compile(r"[rR]?(?:\"\"\"|''')")


class Signature(NamedTuple):
    """One line that defines something; `documents` if it is the first line of a docstring instead."""

    line: int
    indent: int
    text: str
    documents: bool = False


NumberedLine = tuple[int, str]


def find_signatures(text: str) -> list[Signature]:
    """Every definition of a source text, with its 1-based line number, in order."""
    return list(_find_signatures(list(_number_lines(text.split("\n")))))


def _number_lines(lines: Sequence[str]) -> Iterator[NumberedLine]:
    """Lines with their numbers: those that a tool has printed in front of them, else by position."""
    if not is_numbered(lines):
        yield from enumerate(lines, start=1)
        return
    number = 0
    for line in lines:
        match = _NUMBERED.match(line)
        if match:
            number = int(match[1])
            yield number, line[match.end() :]
        else:
            number += 1
            yield number, line


def is_numbered(lines: Iterable[str]) -> bool:
    """Whether the first lines carry consecutive numbers, as tools that read files print them.

    `  7→def f():`, `  8→    pass` and `  9→` do. So a log whose lines begin with equal dates does not.
    """
    matches = [_NUMBERED.match(line) for line in islice(lines, 3)]
    numbers = [int(match[1]) for match in matches if match]
    if len(numbers) < 3:
        return False
    first = numbers[0]
    return numbers == [first, first + 1, first + 2]


def _find_signatures(lines: Sequence[NumberedLine]) -> Iterator[Signature]:
    """The definitions among these lines, and the first line of each docstring.

    A docstring may stand at the beginning of a file, or below a signature that ends with a colon. Comments
    may stand before it. The lines that a signature goes on for are not looked at again.
    """
    may_document = True  # a docstring may follow: the file begins, or a signature has just ended
    lines_to_skip = 0  # lines that belong to the signature before them
    for index, (number, line) in enumerate(lines):
        start = line[:_WIDTH]
        bare = start.strip(WHITE_SPACE)
        if lines_to_skip or not bare:
            lines_to_skip = max(lines_to_skip - 1, 0)
            continue
        if may_document and _DOCSTRING.match(bare):
            yield Signature(number, _count_indent(start), bare, documents=True)
        may_document = may_document and bare.startswith("#")
        if is_definition(start, _line_after(lines, index)):
            signature, lines_to_skip = _join_continuations(bare, lines, index)
            yield Signature(number, _count_indent(start), signature)
            may_document = signature.endswith(":")


def _count_indent(line: str) -> int:
    return len(line) - len(line.lstrip(WHITE_SPACE))


def _line_after(lines: Sequence[NumberedLine], index: int) -> str:
    """The start of the next line; "" after the last one."""
    if index + 1 == len(lines):
        return ""
    return lines[index + 1][1][:_WIDTH]


def is_definition(line: str, following: str = "") -> bool:
    """Whether a line defines something. `following` is the line after it, which may hold the brace.

    `export async function load(id) {`, `pub fn run()`, `const add = (a, b) => a + b` and `int main(void)`
    before a line `{` do. Words such as `export` and `pub` in front of a definition do not matter.
    """
    line = line[:_WIDTH].rstrip(WHITE_SPACE)
    bare = line.lstrip(WHITE_SPACE)
    words = split_words(bare)
    modifier_count = 0
    while modifier_count < len(words) and words[modifier_count] in _MODIFIERS:
        modifier_count += 1
    if modifier_count == len(words):
        return False
    if _KNOWN_KEYWORDS[words[modifier_count]] and _opens_definition(words[modifier_count:], line):
        return True
    if modifier_count and _BINDERS.intersection(words[:modifier_count]) and _binds_function(bare):
        return True
    # Most lines end here: they have no bracket, or no brace after it.
    if "(" not in bare or not (bare.endswith("{") or following.lstrip(WHITE_SPACE).startswith("{")):
        return False
    return _is_function_head(line, bare, has_modifiers=modifier_count > 0)


def _opens_definition(words: Sequence[str], line: str) -> bool:
    """Whether a line has a keyword and a name: `class Thing`, `fn run() {`.

    A longer line needs punctuation too, or prose such as "class of 1968 meets" would be a definition.
    """
    if len(words) == 1:
        return False
    if not _begins_name(words[1][0]):
        return False
    if len(words) == 2:
        return True
    return any(mark in line for mark in "({:=;<")


def _is_keyword(word: str) -> bool:
    """Whether a definition may begin with a word: `def`, `impl<T>`. Lines begin with few different words."""
    keyword = _KEYWORD.fullmatch(word)
    return keyword is not None and keyword[1] in _KEYWORDS


_KNOWN_KEYWORDS = KnownWords(_is_keyword, longest=40)


def _begins_name(character: str) -> bool:
    """Whether a name may begin with this character, or with what may stand before a name in Go and Rust.

    `func (s *Server) Close()` has its receiver there, and `impl <T> Trait` its type parameters.
    """
    return is_letter(character) or character in "_$(<"


def _binds_function(bare: str) -> bool:
    """Whether a line binds a function to a name: `const add = (a, b) => a + b`, `let run = function () {`.

    `const total = (a + b) * 2` has a bracket in the same place, but neither an arrow nor a function.
    """
    _, equals, value = bare.partition("=")
    value = value.lstrip(WHITE_SPACE)
    if not equals or not _ARROW.match(value):
        return False
    return "=>" in value or "function" in value


def _is_function_head(line: str, bare: str, *, has_modifiers: bool) -> bool:
    """Whether a line is the head of a C-like function: type and name before the bracket, a brace after it.

    `static int find(char *name) {` is one. `if (ready) {` and `find(name);` are not.
    """
    head, _, rest = bare.partition("(")
    words = split_words(head)
    if rest.endswith(";") or not _ends_with_name(head, words):
        return False
    closes_bracket = rest[:-1].rstrip(WHITE_SPACE).endswith(")")
    is_indented = line != bare
    if len(words) == 1:
        # A method without a type: `run(task) {` inside a class.
        return is_indented and closes_bracket
    if has_modifiers or not is_indented:
        return True
    return closes_bracket


def _ends_with_name(head: str, words: Sequence[str]) -> bool:
    """Whether the words before a bracket are types and a name, and not `while` or `return`.

    `static int find` are, and so is `*Foo::bar`. `else if` and `a + b` are not.
    """
    if not words or words[0] in _CONTROL:
        return False
    if not _TYPE_AND_NAME.fullmatch(head):
        return False
    return _NAME.fullmatch(words[-1]) is not None


def _join_continuations(bare: str, lines: Sequence[NumberedLine], index: int) -> tuple[str, int]:
    """A signature with the lines that its open brackets go on for.

    The number is how many lines these are, or 0 if the brackets are still open after them.
    """
    signature = bare
    open_brackets = _count_open_brackets(bare)
    used_lines = 0
    while open_brackets > 0 and used_lines < _MOST_CONTINUATIONS and len(signature) < _WIDTH:
        next_index = index + used_lines + 1
        if next_index == len(lines):
            break
        used_lines += 1
        continuation = lines[next_index][1][:_WIDTH].strip(WHITE_SPACE)
        open_brackets += _count_open_brackets(continuation)
        if signature.endswith(("(", "[")) or continuation.startswith((")", "]")):
            signature += continuation
        else:
            signature += f" {continuation}"
    if open_brackets > 0:
        used_lines = 0
    return signature[:_WIDTH], used_lines


def _count_open_brackets(line: str) -> int:
    """How many more brackets a line opens than it closes. Braces do not count: a body goes on in them."""
    return line.count("(") + line.count("[") - line.count(")") - line.count("]")
