from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.cli.files import DEPTH, parse_strictly
from lamina.errors import BadInput
from tests.cli.running import run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def refused(text: str) -> str:
    with pytest.raises(BadInput) as caught:
        parse_strictly(text, name="x.json")
    return str(caught.value)


@given(JSON, st.booleans())
def test_json_is_read_as_it_was_written(value: Any, ascii_only: bool) -> None:  # noqa: FBT001
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert text.isspace() or not text or parse_strictly(text, name="x.json") == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "x.json: it is empty; give one JSON object"),
        (" \n\t", "x.json: it is empty; give one JSON object"),
        (
            '{"a": 1} {}',
            "x.json:1:10: something follows the JSON value; give one value, and nothing after it",
        ),
        ('{"a": 1,\n "a": 2}', "x.json: the key 'a' comes twice in one object; keep one of them"),
        (
            '{"a": [0, {"b": 1, "\\u0062": 2}]}',
            "x.json: the key 'b' comes twice in one object; keep one of them",
        ),
        (
            '{"a": {"x": 1}, "b": {"x": 1, "x": "}"}}',
            "x.json: the key 'x' comes twice in one object; keep one of them",
        ),
        ('{"a": [1, NaN]}', "x.json: NaN is not JSON; give a finite number, or null"),
        ("[-Infinity]", "x.json: -Infinity is not JSON; give a finite number, or null"),
        ('"NaN" NaN', "x.json:1:7: something follows the JSON value; give one value, and nothing after it"),
        ("Infinity", "x.json: Infinity is not JSON; give a finite number, or null"),
        ('{"a": -1e999}', "x.json: the number -1e999 is out of range; give a finite number, or null"),
        (
            f'{{"a": {"1" * 5000}}}',
            "x.json: a number of 5,000 characters; give a finite number, or null",
        ),
        ('{"a": "\x01"}', "x.json:1:8: invalid control character; give JSON"),
        ("{'a': 1}", "x.json:1:2: expecting property name enclosed in double quotes; give JSON"),
        ("\ufeff{}", "x.json:1:1: it begins with a byte order mark; save it as UTF-8 without one"),
    ],
)
def test_what_is_refused_is_said(text: str, said: str) -> None:
    assert refused(text) == said


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_levels_are_counted(opening: str, closing: str) -> None:
    assert parse_strictly(opening * DEPTH + "1" + closing * DEPTH, name="x.json")
    for levels in (DEPTH + 1, 5_000, 100_000):
        said = refused(opening * levels + "1" + closing * levels)
        assert said == f"x.json: more than {DEPTH} levels; use less nesting"


@given(JSON, JSON, st.text(max_size=5))
def test_a_key_that_comes_twice_is_found_wherever_it_stands(before: Any, inside: Any, key: str) -> None:
    name, value = json.dumps(key), json.dumps(inside)
    text = f"[{json.dumps(before)}, {{{name}: {value}, {name}: {value}}}]"
    assert refused(text) == f"x.json: the key {key!r} comes twice in one object; keep one of them"


@given(st.text(alphabet='{}[]",:\\ 1-.eNaInfity\nu0', max_size=30))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    place = ""
    try:
        parse_strictly(text, name="x.json")
    except BadInput as error:
        place = error.place
    assert re.fullmatch(r"|x\.json|x\.json:\d+:\d+", place, re.DOTALL)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty; give one JSON object"),
        (b"\x7fELF\xff\x00", "byte 4 (0xff) is not UTF-8; give JSON, as UTF-8"),
        ('{"ü": 1}'.encode("latin-1"), "byte 2 (0xfc) is not UTF-8; give JSON, as UTF-8"),
        (b"[]", "it holds a list; give one request: an object with messages"),
        (b"null", "it holds null; give one request: an object with messages"),
        (b"0.5", "it holds a number; give one request: an object with messages"),
        (b'"hi"', "it holds text; give one request: an object with messages"),
    ],
)
def test_a_file_that_holds_no_request_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "request.json"
    path.write_bytes(content)
    for options in ((), ("--check",), ("--explain",)):
        assert run("fit", path, *options) == (2, "", f"lamina: {path}: {said}\n")
        assert run("fit", "-", *options, given=content) == (2, "", f"lamina: stdin: {said}\n")


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    assert run("fit", missing) == (2, "", f"lamina: {missing}: there is no such file; check the path\n")
    assert run("fit", tmp_path) == (2, "", f"lamina: {tmp_path}: it is a folder; name a file in it\n")
    assert run("fit", "a\0b").err.endswith("check the path and its rights\n")
    assert run("diff", missing, "-", given=b"{}").err.startswith(f"lamina: {missing}: there is no such file")
