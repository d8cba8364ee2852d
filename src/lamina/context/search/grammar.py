"""Where the definitions of a source text begin and end, by its grammar: tree-sitter, where it is installed.

Each language is a package of its own with its grammar inside (`lamina[code]`), so that nothing is fetched
when the program runs. A language that has none here, and a text that is not of its language, are left to
the rules over single lines in `chunks`. It knows no chunks and no sizes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from lamina.core.text.characters import split_words

Mark = tuple[int, str]
"""A line (from 0) where something begins, and the definitions around it."""

LANGUAGES = {
    "c": ("tree_sitter_c", "language"),
    "h": ("tree_sitter_c", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "js": ("tree_sitter_javascript", "language"),
    "jsx": ("tree_sitter_javascript", "language"),
    "mjs": ("tree_sitter_javascript", "language"),
    "py": ("tree_sitter_python", "language"),
    "pyi": ("tree_sitter_python", "language"),
    "rb": ("tree_sitter_ruby", "language"),
    "rs": ("tree_sitter_rust", "language"),
    "ts": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
}
"""By the end of a file's name: the package, and the function of it that gives the grammar."""

LARGEST = 2_000_000
"""Characters: a longer text is data or was generated, and its tree takes more memory than it is worth."""

WRONG = 0.2
"""The share of a text that may be in errors: with more it is of another language."""

_ENDS = ("_definition", "_declaration", "_item")
_NAMED = frozenset(("class", "method", "module", "singleton_method"))  # as Ruby's grammar calls them
_NOT = frozenset(
    "field_declaration global_declaration import_declaration lexical_declaration local_variable_declaration "
    "package_declaration parameter_declaration use_declaration variable_declaration".split()
)


def definitions(text: str, suffix: str) -> list[Mark] | None:
    """Where definitions begin, and where what stands behind one begins; None if the grammar cannot say."""
    language = _language(suffix)
    if language is None or len(text) > LARGEST:
        return None
    parser = importlib.import_module("tree_sitter").Parser(language)  # one for each call: threads share none
    root = parser.parse(text.encode("utf-8", "replace")).root_node
    try:
        wrong = _broken(root) if root.has_error else 0
        return list(_marks(root, ())) if wrong <= WRONG * len(text) else None
    except RecursionError:  # nested deeper than any program that people write
        return None


def _marks(node: Any, around: tuple[str, ...]) -> Iterator[Mark]:
    for child in node.named_children:
        inner = _inner(child)
        if inner is None:
            yield from _marks(child, around) if _holds(child) else ()
            continue
        yield child.start_point[0], " > ".join(around)
        yield from _marks(inner, (*around, _signature(inner)))
        yield child.end_point[0] + 1, " > ".join(around)


def _inner(node: Any) -> Any:
    """The definition that a node is, or that it wraps in decorators or an export; None if it is none."""
    if node.type in {"decorated_definition", "export_statement", "template_declaration"}:
        return next((one for one in node.named_children if _defines(one)), None)
    return node if _defines(node) else None


def _defines(node: Any) -> bool:
    return node.type not in _NOT and (node.type in _NAMED or node.type.endswith(_ENDS))


def _holds(node: Any) -> bool:
    """Whether definitions may stand in it that are not local to one: bodies of classes, guards."""
    return not node.type.endswith(("expression", "string", "call", "comment", "parameters", "arguments"))


def _signature(node: Any) -> str:
    """The head of a definition on one line, without its body."""
    body = node.child_by_field_name("body")
    end = body.start_byte - node.start_byte if body is not None else len(node.text)
    return " ".join(split_words(node.text[:end].decode("utf-8", "replace")))[:200]


def _broken(node: Any) -> int:
    """How many bytes are in errors, outermost counted once."""
    if node.type == "ERROR":
        return int(node.end_byte - node.start_byte)
    return sum(_broken(child) for child in node.children if child.has_error)


@cache
def _language(suffix: str) -> Any:
    package, name = LANGUAGES.get(suffix, ("", ""))
    try:
        tree_sitter, grammar = importlib.import_module("tree_sitter"), importlib.import_module(package)
    except (ImportError, ValueError):
        return None
    return tree_sitter.Language(getattr(grammar, name)())
