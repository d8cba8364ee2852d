"""Finds where the definitions of a source text begin and end, by tree-sitter if it is installed.

Each language is a package of its own with its grammar inside (extra: search), so nothing is fetched when the
program runs. For languages without a package, and texts that are not of their language, `chunks` uses rules
over single lines. This module knows no chunks and no sizes.
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
"""For each suffix of a file name: the package, and its function that returns the grammar."""

LARGEST = 2_000_000
"""Characters. A longer text is data or was generated, and its tree takes more memory than it is worth."""

MOST_ERRORS = 0.2
"""The share of a text that may be in errors. With more errors the text is of another language."""

_DEFINITION_ENDINGS = ("_definition", "_declaration", "_item")
_DEFINITION_NAMES = frozenset(("class", "method", "module", "singleton_method"))  # in Ruby's grammar
_LEAF_ENDINGS = ("expression", "string", "call", "comment", "parameters", "arguments")
_NOT_DEFINITIONS = frozenset(
    "field_declaration global_declaration import_declaration lexical_declaration local_variable_declaration "
    "package_declaration parameter_declaration use_declaration variable_declaration".split()
)


def definitions(text: str, suffix: str) -> list[Mark] | None:
    """The lines where a definition begins or has ended; None if the grammar cannot tell.

    A text with many errors is of another language, or of a version that the grammar does not know.
    """
    language = _language(suffix)
    if language is None or len(text) > LARGEST:
        return None
    parser = importlib.import_module("tree_sitter").Parser(language)  # threads cannot share one
    root = parser.parse(text.encode("utf-8", "replace")).root_node
    try:
        if root.has_error and _count_error_bytes(root) > MOST_ERRORS * len(text):
            return None
        return list(_find_marks(root, ()))
    except RecursionError:  # nested deeper than any program that people write
        return None


def _find_marks(node: Any, enclosing: tuple[str, ...]) -> Iterator[Mark]:
    """The marks of all definitions below a node."""
    for child in node.named_children:
        definition = _find_definition(child)
        if definition is not None:
            yield child.start_point[0], " > ".join(enclosing)
            yield from _find_marks(definition, (*enclosing, _signature(definition)))
            yield child.end_point[0] + 1, " > ".join(enclosing)
        elif _may_hold_definitions(child):
            yield from _find_marks(child, enclosing)


def _find_definition(node: Any) -> Any:
    """The definition that a node is, or that it wraps in decorators or an export; else None."""
    if node.type in {"decorated_definition", "export_statement", "template_declaration"}:
        for child in node.named_children:
            if _is_definition(child):
                return child
        return None
    if _is_definition(node):
        return node
    return None


def _is_definition(node: Any) -> bool:
    """Whether a node of the syntax tree defines something that has a name."""
    if node.type in _NOT_DEFINITIONS:
        return False
    return node.type in _DEFINITION_NAMES or node.type.endswith(_DEFINITION_ENDINGS)


def _may_hold_definitions(node: Any) -> bool:
    """Whether there may be definitions in it that others can use: bodies of classes, `if` blocks."""
    return not node.type.endswith(_LEAF_ENDINGS)


def _signature(node: Any) -> str:
    """The head of a definition on one line, without its body."""
    head = node.text
    body = node.child_by_field_name("body")
    if body is not None:
        head = head[: body.start_byte - node.start_byte]
    return " ".join(split_words(head.decode("utf-8", "replace")))[:200]


def _count_error_bytes(node: Any) -> int:
    """How many bytes are in errors. An error inside of another is not counted again."""
    if node.type == "ERROR":
        return int(node.end_byte - node.start_byte)
    return sum(_count_error_bytes(child) for child in node.children if child.has_error)


@cache
def _language(suffix: str) -> Any:
    """The grammar of a language, None if it is not installed."""
    package, function = LANGUAGES.get(suffix, ("", ""))
    try:
        tree_sitter = importlib.import_module("tree_sitter")
        grammar = importlib.import_module(package)
    except (ImportError, ValueError):
        return None
    return tree_sitter.Language(getattr(grammar, function)())
