"""The memory tool's commands: the provider's own words, and no path that leads anywhere else."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool
from hypothesis import example, given
from hypothesis import strategies as st

from lamina.conversations.memory_commands import (
    LARGEST_FILE,
    LONGEST_VIEW,
    MOST_FILES,
    MemoryAnswer,
    run_command,
)

PATHS = ("/memories/a.md", "/memories/b.md", "/memories/sub/c.md", "/memories/sub", "/memories/gone.md")
TEXTS = ("", "one\n", "one\ntwo\nthree", "two two\n", "x" * 1_500, "ä\r\nb\n")


def apply(files: Mapping[str, str], answer: MemoryAnswer) -> dict[str, str]:
    """The files after a command."""
    after = dict(files)
    for path, text in answer.changes.items():
        if text is None:
            after.pop(path, None)
        else:
            after[path] = text
    return after


def run(files: Mapping[str, str], command: str, **arguments: Any) -> MemoryAnswer:
    return run_command(files, {"command": command, **arguments})


path_strategy = st.sampled_from(PATHS)
text_strategy = st.sampled_from(TEXTS)
commands = st.one_of(
    st.fixed_dictionaries({"command": st.just("create"), "path": path_strategy, "file_text": text_strategy}),
    st.fixed_dictionaries(
        {
            "command": st.just("view"),
            "path": path_strategy,
            "view_range": st.one_of(st.none(), st.lists(st.integers(-1, 4), min_size=2, max_size=2)),
        }
    ),
    st.fixed_dictionaries(
        {
            "command": st.just("str_replace"),
            "path": path_strategy,
            "old_str": st.sampled_from(("one", "two", "zero", "t")),
            "new_str": st.sampled_from(("", "four\nfive", "two")),
        }
    ),
    st.fixed_dictionaries(
        {
            "command": st.just("insert"),
            "path": path_strategy,
            "insert_line": st.integers(-1, 5),
            "insert_text": st.sampled_from(("new", "new\n", "two\nlines\n")),
        }
    ),
    st.fixed_dictionaries({"command": st.just("delete"), "path": path_strategy}),
    st.fixed_dictionaries(
        {"command": st.just("rename"), "old_path": path_strategy, "new_path": path_strategy}
    ),
)


def leaves_an_empty_directory(root: Path) -> bool:
    return any(path.is_dir() and not any(path.iterdir()) for path in root.rglob("*"))


NO_LINE_OF_A_FILE = [
    {"command": "create", "path": "/memories/a.md", "file_text": "one"},
    {"command": "view", "path": "/memories/a.md", "view_range": [0, 0]},
]


@example(NO_LINE_OF_A_FILE)
@given(st.lists(commands, max_size=12))
def test_every_answer_is_that_of_the_providers_sdk(steps: list[dict[str, Any]]) -> None:
    """Two differences are ours: an empty directory is gone, and one cannot be made of a file."""
    files: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        reference = BetaLocalFilesystemMemoryTool(folder)
        for step in steps:
            answer = run_command(files, step)
            try:
                expected = reference.call(step)
                refused = False
            except ToolError as error:
                expected = str(error)
                refused = True
            except (NotADirectoryError, FileExistsError, OSError):
                return  # it fails where a file is taken for a directory
            if leaves_an_empty_directory(reference.memory_root):
                return
            assert answer.error is refused, (step, answer, expected)
            if "files and directories" not in answer.text:
                assert answer.text == expected
            files = apply(files, answer)
        kept = {
            f"/memories/{path.relative_to(reference.memory_root)}": path.read_bytes().decode()
            for path in reference.memory_root.rglob("*")
            if path.is_file()
        }
        assert files == kept


def test_a_directory_is_listed_two_levels_deep_without_hidden_items() -> None:
    files = {
        "/memories/notes.md": "x" * 1_536,
        "/memories/.hidden": "x",
        "/memories/projects/one/plan.md": "x" * 2_048,
        "/memories/projects/two.md": "",
    }
    assert run(files, "view", path="/memories").text.splitlines() == [
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:",
        "3.5K\t/memories",
        "1.5K\t/memories/notes.md",
        "2K\t/memories/projects/",
        "2K\t/memories/projects/one/",
        "0B\t/memories/projects/two.md",
    ]
    assert run({}, "view", path="/memories").text.splitlines()[1:] == ["0B\t/memories"]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "memories/a.md",
        "/memories/../etc/passwd",
        "/memories/sub/../../etc/passwd",
        "/memories/..",
        "/memories/%2e%2e/etc/passwd",
        "/memories/%252e%252e/etc",
        "/memories/..\\..\\windows",
        "/memories\\..\\x",
        "/memories/a\x00.md",
        "/memories/a\nb",
        "/memoriesandmore/a.md",
        "/memories/" + "a" * 600,
        "",
        None,
        5,
    ],
)
@pytest.mark.parametrize("command", ["view", "create", "str_replace", "insert", "delete", "rename"])
def test_a_path_that_leads_out_is_refused_by_every_command(command: str, path: Any) -> None:
    files = {"/memories/a.md": "one"}
    arguments = {
        "path": path,
        "file_text": "x",
        "old_str": "one",
        "new_str": "two",
        "insert_line": 0,
        "insert_text": "x",
        "old_path": "/memories/a.md",
        "new_path": path,
    }
    answer = run(files, command, **arguments)
    assert answer.error
    assert not answer.changes


@given(
    st.dictionaries(
        st.sampled_from(["command", "path", "old_path", "view_range"]),
        st.one_of(st.none(), st.integers(), st.text(), st.just("view"), st.lists(st.integers())),
    )
)
def test_no_arguments_raise(arguments: dict[str, Any]) -> None:
    assert run_command({"/memories/a.md": "x"}, arguments).text


@pytest.mark.parametrize("command", ["create", "insert", "str_replace"])
def test_what_no_file_can_hold_is_refused(command: str) -> None:
    files = {"/memories/a.md": "one"}
    path = "/memories/new.md" if command == "create" else "/memories/a.md"
    for text in ("\ud800", "x" * (LARGEST_FILE + 1), None):
        arguments = {"file_text": text, "insert_text": text, "new_str": text, "old_str": "one"}
        answer = run(files, command, path=path, insert_line=0, **arguments)
        if command == "str_replace" and text is None:
            assert answer.changes == {"/memories/a.md": ""}
        else:
            assert answer.error


def test_files_are_bounded_in_number_and_a_view_in_length() -> None:
    full = {f"/memories/{number}.md": "" for number in range(MOST_FILES)}
    assert run(full, "create", path="/memories/more.md", file_text="").error
    text = "\n".join(f"line {number} of a long file" for number in range(5_000))
    files = {"/memories/long.md": text}
    seen = 0
    first = 1
    while seen < 5_000:
        shown = run(files, "view", path="/memories/long.md", view_range=[first, -1]).text.splitlines()[1:]
        assert sum(map(len, shown)) < LONGEST_VIEW + 200
        more = shown[-1].startswith("[")
        seen += len(shown) - more
        first = seen + 1
        assert more is (seen < 5_000)


def test_a_directory_cannot_be_moved_into_itself() -> None:
    files = {"/memories/a/b.md": "x"}
    assert run(files, "rename", old_path="/memories/a", new_path="/memories/a/c").error
    moved = run(files, "rename", old_path="/memories/a", new_path="/memories/c/d")
    assert apply(files, moved) == {"/memories/c/d/b.md": "x"}
