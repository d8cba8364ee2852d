from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.text.clipping import clip_lines
from lamina.core.text.code import find_signatures
from lamina.core.text.outline import outline_text

# source code


PYTHON = '''"""What the file does."""
import os

@cached
def top(
    first: int,
    second: str = "x",
) -> int:
    """Says what it does.

    def not_this() is prose
    """
    return helper(first)

class Thing(Base):
    async def run(self) -> None:
        if self.ready(1) and (
            2
        ):
            return call(3)
'''


def test_code_lists_signatures_with_their_lines() -> None:
    assert [(sign.line, sign.text) for sign in find_signatures(PYTHON)] == [
        (5, "def top("),
        (11, "def not_this() is prose"),
        (15, "class Thing(Base):"),
        (16, "async def run(self) -> None:"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "export default function App({ a }) {",
        "export const useThing = async (a: string): Promise<void> => {",
        "  handle(event) {",
        "export interface Row {",
        "type Row = { id: number }",
        "func (s *Server) Start(ctx context.Context) error {",
        "type Server struct {",
        "pub(crate) async fn read<T>(from: T) -> u8 {",
        "impl<T> Read for Server<T> {",
        "    public static void main(String[] args) throws Exception {",
        "static int compare(const void *a, const void *b) {",
        "fun area(side: Double) = side * side",
        "module Shapes",
    ],
)
def test_code_knows_a_definition_by_its_line(line: str) -> None:
    assert [sign.text for sign in find_signatures(f"{line}\n")] == [line.strip()]


@pytest.mark.parametrize(
    "line",
    [
        "  if (ready) {",
        "  } else if (ready) {",
        "return compute(a, b)",
        "class of things that go on without any mark",
        "// function in a comment",
        "# def in a comment",
        "const total = (a + b) * 2;",
        "run(all, of, them);",
        "const rows = items.map((item) => item.id)",
        "type(value)",
        "",
    ],
)
def test_code_leaves_other_lines_alone(line: str) -> None:
    assert find_signatures(f"{line}\n") == []


def test_code_finds_a_brace_on_the_next_line() -> None:
    assert [sign.text for sign in find_signatures("int main(int argc)\n{\n}\n")] == ["int main(int argc)"]


def test_code_keeps_indentation_and_counts_what_is_left_out() -> None:
    text = (
        "class A:\n    def one(self):\n        pass\n\n    def two(self):\n        pass\n"
        + "# filler\n" * 100
    )
    assert outline_text(text, limit=200, name="a.py") == (
        "1: class A:\n2:     def one(self):\n5:     def two(self):\n[... 104 lines left out ...]"
    )


def test_code_keeps_the_outermost_signatures_where_not_all_fit() -> None:
    text = "".join(f"class C{n}:\n    def method(self):\n        return {n}\n" for n in range(12))
    short_text = outline_text(text, limit=300, name="a.py")
    assert all(f"class C{n}:" in short_text for n in range(12))
    assert short_text.count("def method") < 12


def test_code_uses_the_line_numbers_that_a_tool_printed() -> None:
    text = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(PYTHON.split("\n") * 5, start=100))
    short_text = outline_text(text, limit=600)
    assert "114: class Thing(Base):" in short_text
    assert "115:     async def run(self) -> None:" in short_text


def test_code_with_few_signatures_is_shown_by_head_and_tail() -> None:
    text = "def only():\n" + "x = 1\n" * 200
    assert outline_text(text, limit=300, name="a.py") == clip_lines(text, limit=300)


# JSON


def test_json_is_shown_with_what_is_long_in_it_shortened() -> None:
    text = json.dumps({"ok": True, "data": {"items": [{"id": n} for n in range(50)]}, "text": "y" * 3_000})
    shown = outline_text(text, limit=400).split("\n")
    assert shown[0].startswith('{"ok":true,"data":{"items":[{"id":0},{"id":1},')
    assert shown[0].endswith(f'"text":"{"y" * 100}..."}}')
    assert shown[1] == f"[... shortened from {len(text):,} bytes ...]"


def test_json_with_many_rows_shows_the_first_and_the_last() -> None:
    rows = [{"id": number, "name": f"n{number}", "price": 1.50} for number in range(300)]
    for value in (rows, {f"key{row['id']}": row for row in rows}):
        shown = outline_text(json.dumps(value), limit=400).split("\n")
        assert '{"id":0,"name":"n0","price":1.5}' in shown[0]
        assert '{"id":299,"name":"n299","price":1.5}' in shown[-2]
        assert sum(" lines left out ...]" in line for line in shown) == 1


def test_json_numbers_stand_as_they_were_written() -> None:
    text = "[" + ",".join(["1.50", "1e400", "9" * 5_000, "NaN"] * 50) + "]"
    assert outline_text(text, limit=900).startswith("[1.50,1e400,999")


def test_json_nesting_is_bounded() -> None:
    value: object = 1
    for _ in range(20):
        value = {"a": value, "pad": "x" * 100}
    assert "object of 2" in outline_text(json.dumps([value] * 9), limit=1_000)


def test_json_text_stays_encodable_whatever_is_escaped_in_it() -> None:
    text = json.dumps([{"a": "\ud800"}] * 100)
    assert "\\ud800" in outline_text(text, limit=300).encode().decode()


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[" * 500 + "]" * 500, "{broken}" * 500, "[]" + " " * 500, "[" + "1," * 1_000_001 + "1]"],
    ids=["open", "deep", "broken", "empty", "large"],
)
def test_what_is_no_json_is_shown_by_head_and_tail(text: str) -> None:
    assert outline_text(text, limit=300) == clip_lines(text, limit=300)


@given(count=st.integers(1, 60) | st.integers(1_000, 3_000), as_object=st.booleans())
def test_of_a_long_value_in_json_it_is_said_how_many_items_are_not_shown(
    count: int, *, as_object: bool
) -> None:
    value: object = [True] * count
    if as_object:
        value = {f"n{number}": True for number in range(count)}
    shown = outline_text(json.dumps([{"row": value}, {"row": "x" * 2_000}]), limit=1_000)
    said = re.findall(r"\.\.\. ([\d,]+) more", shown)
    assert shown.count("true") + sum(int(number.replace(",", "")) for number in said) == count
