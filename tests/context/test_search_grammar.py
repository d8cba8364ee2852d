"""Definitions by their grammar, and by rules over lines where there is none."""

from __future__ import annotations

import pytest

from lamina.context.search import chunks_of, grammar

PYTHON = '''import os

# about A
@decorated
class A(Base):
    """A class of nothing.

def fake(): this is in a docstring
    """

    def one(self, first,
            second):
        return 1

VALUE = 2
'''


def needs(language: str) -> None:
    for module in ("tree_sitter", f"tree_sitter_{language}"):
        pytest.importorskip(module)


def test_a_definition_begins_with_its_decorator_ends_where_it_ends_and_is_none_in_a_string() -> None:
    needs("python")
    assert grammar.definitions(PYTHON, "py") == [
        (3, ""),
        (10, "class A(Base):"),
        (13, "class A(Base):"),
        (13, ""),
    ]


@pytest.mark.parametrize(
    ("language", "suffix", "text", "begins"),
    [
        ("typescript", "ts", "export class A {\n  m(x) {}\n}\nexport function g() {}\n", [0, 1, 3]),
        ("javascript", "js", "class A {\n  m() {}\n}\nfunction g() {}\n", [0, 1, 3]),
        ("go", "go", "package a\nfunc (s *S) M() int { return 1 }\ntype S struct { a int }\n", [1, 2]),
        ("rust", "rs", "mod a {\n  impl X {\n    fn b() {}\n  }\n}\nfn main() {}\n", [0, 1, 2, 5]),
        ("java", "java", "class A {\n  int f;\n  void m() {}\n}\n", [0, 2]),
        ("ruby", "rb", "class A\n  def b\n  end\nend\n", [0, 1]),
        ("c", "c", "int f(int a)\n{ return a; }\nint g(void) { return 1; }\n", [0, 2]),
    ],
)
def test_definitions_of_other_languages_are_found(
    language: str, suffix: str, text: str, begins: list[int]
) -> None:
    needs(language)
    marks = grammar.definitions(text, suffix) or []
    assert {line for line, _ in marks} >= set(begins)


@pytest.mark.parametrize(
    ("suffix", "text"),
    [("sql", "SELECT 1"), ("py", "this is } prose (not a language\n" * 3), ("py", "x = 1\n" * 400_000)],
)
def test_what_no_grammar_can_say_is_left_to_the_lines(suffix: str, text: str) -> None:
    assert grammar.definitions(text, suffix) is None


def test_a_language_that_is_not_installed_is_cut_by_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "    x = 1\n" * 60
    text = f"class A:\n    def one(self):\n{body}\n    def two(self):\n{body}"
    with_grammar = chunks_of("a.py", text)
    monkeypatch.setattr(grammar, "LANGUAGES", {})
    grammar._language.cache_clear()  # noqa: SLF001 - it remembers what is installed
    try:
        assert chunks_of("a.py", text)[-1].text == with_grammar[-1].text
        assert grammar.definitions(text, "py") is None
    finally:
        grammar._language.cache_clear()  # noqa: SLF001


def test_deeply_nested_code_is_cut_without_an_error() -> None:
    text = "".join(f"{' ' * depth}def f{depth}():\n" for depth in range(300)) + " " * 300 + "pass\n"
    assert "".join(chunk.text for chunk in chunks_of("deep.py", text)).count("def f") >= 300
    for begin, end in (("(", ")"), ("[", "]"), ("{", "}"), ("lambda: ", "")):
        assert chunks_of("brackets.py", "x = " + begin * 5_000 + end * 5_000)
    blocks = "".join(f"{' ' * depth}if x:\n" for depth in range(1_500)) + " " * 1_500 + "pass\n"
    assert chunks_of("blocks.py", blocks)
