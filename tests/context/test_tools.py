from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.context.tools import answer, workspace_tools
from lamina.core import ToolCall, ToolResult, text_of
from lamina.core.values import Segment
from lamina.dialects import DIALECTS, PlainHead, Tool
from lamina.errors import BadInput
from lamina.workspace import Workspace
from lamina.workspace import grep as searching
from lamina.workspace.grep import grep


class Bench:
    """A workspace with its tools."""

    def __init__(self, root: Path) -> None:
        self.root, self.space = root, Workspace(root)
        self.tools = workspace_tools(self.space)

    def result(self, name: str, arguments: str) -> ToolResult:
        tool_call = ToolCall(id="c", name=name, arguments=arguments)
        segment: Segment = anyio.run(partial(answer, self.tools, tool_call))
        (part,) = segment.parts
        assert isinstance(part, ToolResult)
        assert (segment.kind, part.id, part.name) == ("tool_result", tool_call.id, name)
        return part

    def ok(self, name: str, **arguments: Any) -> str:
        part = self.result(name, json.dumps(arguments))
        assert not part.error, part
        return text_of(part.content)

    def refused(self, name: str, **arguments: Any) -> str:
        part = self.result(name, json.dumps(arguments))
        assert part.error, part
        return text_of(part.content)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_text("one\ntwo\nthree\n")
    (root / ".env").write_text("KEY=1")
    (tmp_path / "secret.txt").write_text("two secrets")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    return Bench(root)


def test_a_folder_is_listed_with_what_cannot_be_had(bench: Bench) -> None:
    assert bench.ok("ls") == ".env (excluded: not available)\nlink.txt (a symbolic link: not available)\nsrc/"
    assert bench.ok("ls", path="src") == "app.py (14 bytes)"
    (bench.root / "void").mkdir()
    assert bench.ok("ls", path="void") == "(empty)"


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ({}, "one\ntwo\nthree"),
        ({"start": 2}, "two\nthree"),
        ({"start": 2, "end": 2}, "two"),
        ({"end": 9}, "one\ntwo\nthree"),
    ],
)
def test_a_file_is_read_by_lines(bench: Bench, span: dict[str, int], expected: str) -> None:
    assert bench.ok("read", path="src/app.py", **span) == expected


def test_lines_that_are_not_there_are_an_error(bench: Bench) -> None:
    assert "it has 3 lines" in bench.refused("read", path="src/app.py", start=4)
    bench.refused("read", path="src/app.py", start=3, end=2)
    bench.refused("read", path="src/app.py", start=0)


def test_a_part_never_passes_for_the_whole(bench: Bench) -> None:
    (bench.root / "long.txt").write_text("line\n" * 5_000)
    assert "5,000 lines" in bench.refused("read", path="long.txt")
    assert bench.ok("read", path="long.txt", start=4_999) == "line\nline"
    assert bench.ok("read", path="long.txt", end=2) == "line\nline"


def test_files_are_written_edited_moved_and_removed(bench: Bench) -> None:
    assert bench.ok("write", path="new/a.txt", content="é") == "made, 2 bytes"
    assert bench.ok("write", path="new/a.txt", content="one two") == "replaced, 7 bytes"
    assert bench.ok("edit", path="new/a.txt", old="two", new="2") == "replaced in 1 place"
    assert bench.ok("mv", path="new/a.txt", to="./b.txt") == "moved to b.txt"
    assert (bench.root / "b.txt").read_text() == "one 2"
    assert bench.ok("touch", path="b.txt") == "it was there already"
    assert bench.ok("touch", path="c.txt") == "made"
    assert bench.ok("rm", path="b.txt") == "removed"
    assert bench.ok("rm", path="new") == "removed"
    assert sorted(one.name for one in bench.root.iterdir()) == [".env", "c.txt", "link.txt", "src"]


@pytest.mark.parametrize(
    "path", ["../secret.txt", "link.txt", "/etc/passwd", ".env", "", "src/../../secret.txt"]
)
@pytest.mark.parametrize("name", ["read", "write", "edit", "mv", "rm", "touch"])
def test_errors_are_results_and_nothing_leaves_the_workspace(bench: Bench, name: str, path: str) -> None:
    more = {"write": {"content": "x"}, "edit": {"old": "two", "new": "x"}, "mv": {"to": "x.txt"}}
    text = bench.refused(name, path=path, **more.get(name, {}))
    assert "secrets" not in text
    assert "root:" not in text
    assert (bench.root.parent / "secret.txt").read_text() == "two secrets"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("read", "{"), ("read", "[]"), ("read", ""), ("read", '{"path": 1}'), ("read", '{"path": "a", "x": 1}'),
     ("read", '{"path": "src/app.py", "start": true}'), ("read", '{"path": "src/app.py", "start": 1.5}'),
     ("nothing", "{}"), ("write", '{"path": "a", "content": "\\ud800"}'), ("write", '{"path": "a"}'),
     ("grep", '{"pattern": "("}'), ("grep", '{"pattern": ""}'), ("read", "[" * 5_000)],
)  # fmt: skip
def test_calls_that_make_no_sense_are_answered(bench: Bench, name: str, arguments: str) -> None:
    assert bench.result(name, arguments).error
    assert sorted(one.name for one in bench.root.iterdir()) == [".env", "link.txt", "src"]


def test_null_is_as_good_as_nothing(bench: Bench) -> None:
    assert bench.ok("read", path="src/app.py", start=None, end=1) == "one"


@given(st.text(max_size=60))
def test_any_arguments_have_an_answer(tmp_path_factory: pytest.TempPathFactory, arguments: str) -> None:
    tools = workspace_tools(Workspace(tmp_path_factory.getbasetemp()), changes=False)
    for tool in tools[:2]:
        tool_call = ToolCall(id="c", name=tool.name, arguments=arguments)
        assert anyio.run(answer, tools, tool_call).kind == "tool_result"


def test_without_changes_there_are_only_tools_that_look(bench: Bench) -> None:
    looks = workspace_tools(bench.space, changes=False)
    assert [tool.name for tool in looks] == ["ls", "read", "grep"]
    assert [tool.changes for tool in bench.tools] == [False] * 3 + [True] * 5


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_can_say_the_definitions(bench: Bench, name: str) -> None:
    plain = PlainHead(tools=tuple(Tool(**tool.definition) for tool in bench.tools))
    own = DIALECTS[name].head.write(plain)
    assert name == "text" or (own.left == () and "Reads a text file" in str(own.head.tools))


def test_lines_are_found_with_their_place(bench: Bench) -> None:
    (bench.root / "b.txt").write_bytes(b"TWO\r\ntwofold\r\n")
    (bench.root / "bin").write_bytes(b"\0two")
    text = bench.ok("grep", pattern="^two")
    assert text == "b.txt:2: twofold\nsrc/app.py:2: two\n(3 things were not searched)"
    assert bench.ok("grep", pattern="two$", path="src/app.py") == "src/app.py:2: two"
    assert bench.ok("grep", pattern="TWO$", path="b.txt", ignore_case=True).startswith("b.txt:1: TWO")
    assert bench.ok("grep", pattern="absent", path="src") == "(no match)"
    bench.refused("grep", pattern="two", path="link.txt")
    bench.refused("grep", pattern="two", path="..")


def test_many_matches_are_cut_and_said_to_be(bench: Bench) -> None:
    (bench.root / "many.txt").write_text("two\n" * 300)
    lines = bench.ok("grep", pattern="two", path="many.txt").splitlines()
    assert len(lines) == 201
    assert lines[-1] == "(only the first 200 matches)"
    assert not grep(bench.space, "two", "many.txt", most=300).more


def test_a_pattern_that_takes_forever_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "SECONDS", 0.5)
    (bench.root / "a.txt").write_text("a" * 40)
    assert "no end in 0.5 seconds" in bench.refused("grep", pattern="(a+)+$b", path="a.txt")


def test_a_search_has_an_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "SEARCHED", 13)
    result = grep(bench.space, "two", "src")
    assert (result.matches, result.notes) == ([], ["src/app.py: the search is full"])
    with pytest.raises(BadInput):
        grep(bench.space, "a\nb", "src")


def test_reading_for_a_search_ends_with_its_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still until the first file has been read; then it jumps."""
    for name in ("a.txt", "b.txt"):
        (bench.root / "src" / name).write_text("two\n")
    now = [0.0]
    monkeypatch.setattr("lamina.workspace.grep.time.monotonic", lambda: now[0])
    read = Workspace.read

    def slow(space: Workspace, path: str, *, limit: int | None = None) -> bytes:
        now[0] += searching.SECONDS
        return read(space, path, limit=limit)

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "read", slow)
        patch.setattr(searching, "_find_lines", lambda *_, **__: [1])
        result = grep(bench.space, "two", "src")
    assert [match.path for match in result.matches] == ["src/a.txt"]
    assert result.notes == [
        "src/app.py: the time of the search is over",
        "src/b.txt: the time of the search is over",
    ]


@pytest.mark.parametrize(
    "pattern",
    ["(" * 50_000, "(?:" * 20_000 + "a" + ")" * 20_000, "a" * 3_000_000, "[", "(a{1000}){1000}{9}", "\0"],
)
def test_an_absurd_pattern_is_refused_or_finds_nothing(
    bench: Bench, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "SECONDS", 3.0)
    try:
        assert grep(bench.space, pattern, ".").matches == []
    except BadInput as refused:
        assert refused.place == "pattern"  # noqa: PT017 - or nothing was found
