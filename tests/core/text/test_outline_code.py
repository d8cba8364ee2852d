from __future__ import annotations

import json

import pytest

from lamina.core.text.clipping import clip_lines
from lamina.core.text.code import find_signatures
from lamina.core.text.outline import outline_code, outline_csv, outline_json, outline_text


def wire(rows: int) -> str:
    return json.dumps([{"id": number, "name": f"n{number}", "tags": ["a", "b"]} for number in range(rows)])


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
        (1, '"""What the file does."""'),
        (5, 'def top(first: int, second: str = "x",) -> int:'),
        (9, '"""Says what it does.'),
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
    assert outline_code(text, limit=200) == (
        "1: class A:\n2:     def one(self):\n5:     def two(self):\n[... 104 lines left out ...]"
    )


def test_code_keeps_the_outermost_signatures_where_not_all_fit() -> None:
    text = "".join(f"class C{n}:\n    def method(self):\n        return {n}\n" for n in range(12))
    short_text = outline_code(text, limit=300)
    assert all(f"class C{n}:" in short_text for n in range(12))
    assert short_text.count("def method") < 12


def test_code_uses_the_line_numbers_that_a_tool_printed() -> None:
    text = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(PYTHON.split("\n") * 5, start=100))
    short_text = outline_text(text, limit=600)
    assert "114: class Thing(Base):" in short_text
    assert "115:     async def run(self) -> None:" in short_text


def test_code_with_few_signatures_is_shown_by_head_and_tail() -> None:
    text = "def only():\n" + "x = 1\n" * 200
    assert outline_code(text, limit=300) == clip_lines(text, limit=300)


# JSON


def test_json_array_shows_keys_types_and_first_rows() -> None:
    short_text = outline_json(wire(300), limit=300).split("\n")
    assert short_text[:3] == [
        "JSON array of 300 rows",
        '"id": number; "name": string; "tags": array',
        '{"id":0,"name":"n0","tags":["a","b"]}',
    ]
    assert short_text[-1] == f"[... {300 - (len(short_text) - 3)} rows left out ...]"


def test_json_array_shows_the_union_of_keys_and_types() -> None:
    text = json.dumps([{"a": 1}, {"a": None, "b": True}, {"c": {}}] * 50)
    assert '"a": number | null; "b": boolean; "c": object\n' in outline_json(text, limit=400)


def test_json_object_shows_keys_and_the_rows_of_its_table() -> None:
    text = json.dumps({"ok": True, "data": {"items": [{"id": n} for n in range(500)]}, "text": "y" * 300})
    short_text = outline_json(text, limit=600)
    assert short_text.startswith(
        'JSON object of 3 keys\n  "ok": true\n  "data": object of 1 {"items"}\n  "text": "yyy'
    )
    assert 'rows of .data.items:\n{"id":0}\n{"id":1}\n' in short_text
    assert short_text.endswith(" rows left out ...]")


def test_json_object_with_too_many_keys_counts_them() -> None:
    short_text = outline_json(json.dumps({f"key{n}": n for n in range(500)}), limit=300).split("\n")
    assert short_text[0] == "JSON object of 500 keys"
    assert short_text[-1] == f"[... {500 - (len(short_text) - 2)} keys left out ...]"


def test_json_whose_values_alone_are_shortened_says_its_size() -> None:
    text = json.dumps({"a": "x" * 5_000})
    assert outline_json(text, limit=300).endswith(f"[... shortened from {len(text):,} bytes ...]")


def test_json_numbers_stand_as_they_were_written() -> None:
    text = "[" + ",".join(["1.50", "1e400", "9" * 5_000, "NaN"] * 50) + "]"
    assert "\n1.50\n1e400\n999" in outline_json(text, limit=900)


def test_json_nesting_is_bounded() -> None:
    value: object = 1
    for _ in range(20):
        value = {"a": value, "pad": "x" * 100}
    short_text = outline_json(json.dumps([value] * 9), limit=1_000)
    assert "object of 2" in short_text


def test_json_text_stays_encodable_whatever_is_escaped_in_it() -> None:
    text = json.dumps([{"a": "\ud800"}] * 100)
    assert "\\ud800" in text
    assert "\\ud800" in outline_json(text, limit=300).encode().decode()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * 500 + "]" * 500,
        "{broken" * 500,
        "[]" + " " * 500,
        '"' + "x" * 900 + '"',
    ],
)
def test_json_that_has_no_rows_is_shown_by_head_and_tail(text: str) -> None:
    assert outline_json(text, limit=300) == clip_lines(text, limit=300)


def test_json_too_large_to_parse_is_shown_by_head_and_tail() -> None:
    text = "[" + "1," * 1_000_001 + "1]"
    assert outline_json(text, limit=300) == clip_lines(text, limit=300)


# tables


def test_csv_shows_header_types_first_rows_and_their_number() -> None:
    rows = "\n".join(f'{n},"x, {n}",2024-01-02,{n}.5,true,' for n in range(300))
    short_text = outline_csv(f"id,name,when,share,ok,none\n{rows}\n", limit=400).split("\n")
    assert short_text[0] == "300 rows, 6 columns"
    assert short_text[1] == (
        "first 200 rows hold id: integer; name: text; when: date; share: number; ok: boolean; none: nothing"
    )
    assert short_text[2:4] == ["id,name,when,share,ok,none", '0,"x, 0",2024-01-02,0.5,true,']
    assert short_text[-1] == f"[... {300 - (len(short_text) - 4)} rows left out ...]"


def test_csv_keeps_a_quoted_newline_inside_its_row() -> None:
    text = "a,b\n" + '1,"two\nlines"\n' * 100
    assert outline_csv(text, limit=200).startswith("100 rows, 2 columns\n")


def test_csv_with_an_open_quote_ends_with_the_text() -> None:
    assert len(outline_csv('a,b\n"' + "x\n" * 1_000, limit=200)) <= 200


def test_csv_reads_the_delimiter_it_is_given() -> None:
    text = "a;b;c\n" + "1;2,5;3\n" * 100
    assert outline_csv(text, limit=200, delimiter=";").startswith("100 rows, 3 columns\n")
