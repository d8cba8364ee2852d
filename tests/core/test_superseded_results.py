from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core import ToolCall, ToolResult
from lamina.core.ladder import Exchange, find_superseded
from lamina.core.text.subjects import SUBJECT_READERS, ReadableCall, Subject, read_subject


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id="1", name=name, arguments=json.dumps(arguments))


def done(name: str, **arguments: Any) -> Exchange:
    return Exchange(call=call(name, **arguments), result=ToolResult(id="1"))


def failed(name: str, **arguments: Any) -> Exchange:
    return Exchange(call=call(name, **arguments), result=ToolResult(id="1", error=True))


def raw(name: str, arguments: str) -> Exchange:
    return Exchange(call=ToolCall(id="1", name=name, arguments=arguments), result=ToolResult(id="1"))


def sh(command: str) -> Subject | None:
    return read_subject(call("bash", command=command))


def read(path: str, start: int | None = None, end: int | None = None) -> Subject:
    return Subject(verb="read", resource=path, start=start, end=end)


def write(*paths: str) -> Subject:
    return Subject(verb="write", resource="\n".join(paths))


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (call("Read", file_path="/w/a.py"), read("/w/a.py")),
        (call("Read", file_path="/w/a.py", offset=10, limit=5), read("/w/a.py", 10, 14)),
        (call("NotebookRead", notebook_path="n.ipynb"), read("n.ipynb")),
        *((call(name, file_path="a", edits=[]), write("a")) for name in ("Write", "Edit", "MultiEdit")),
        *((call(name, path="a", diff="x"), write("a")) for name in ("write_to_file", "replace_in_file")),
        *((call(name, path="a", diff="x"), write("a")) for name in ("apply_diff", "search_and_replace")),
        *((call(name, path="a", text="x"), write("a")) for name in ("write", "edit", "rm")),
        (call("NotebookEdit", notebook_path="n.ipynb", new_source=""), write("n.ipynb")),
        (call("Bash", command="cat a.py", description="Show it"), read("a.py")),
        (call("shell", command=["bash", "-lc", "sed -n '1,20p' a"], workdir="/w"), read("/w/a", None, 20)),
        (call("shell", command=["cat", "my file"], workdir="/w"), read("/w/my file")),
        (call("exec_command", cmd="nl -ba a.py | sed -n '5,9p'", workdir="/w"), read("/w/a.py", 5, 9)),
        (call("apply_patch", input="***\n*** Update File: a\n*** Add File: b\n"), write("a", "b")),
        (call("read_file", path="a", start_line=3, end_line=9), read("a", 3, 9)),
        *((call(name, command="cat a"), read("a")) for name in ("execute_command", "run_terminal_cmd")),
        (call("str_replace_editor", command="view", path="/w/a"), read("/w/a")),
        (call("str_replace_editor", command="view", path="/w/a", view_range=[5, -1]), read("/w/a", 5)),
        (call("str_replace_editor", command="create", path="/w/a", file_text=""), write("/w/a")),
        (call("str_replace_editor", command="str_replace", path="/w/a", old_str=""), write("/w/a")),
        (call("memory", command="view", path="/m"), read("/m")),
        (call("memory", command="insert", path="/m", insert_text=""), write("/m")),
        (call("read", path="a"), read("a")),
        (call("mcp__disk-edit__read_text_file", path="a"), read("a")),
        (call("read_resource", uri="file:///w/a"), read("/w/a")),
        (call("read_resource", uri="db://x//y"), read("db://x//y")),
    ],
)  # fmt: skip
def test_tools_of_todays_agents_are_understood(known: ToolCall, expected: Subject) -> None:
    assert read_subject(known) == expected


@pytest.mark.parametrize(
    ("verb", "known"),
    [
        *(("search", call(name, pattern="x", path="src")) for name in ("Grep", "search_files", "grep")),
        *(("list", call(name, path="src")) for name in ("Glob", "LS", "list_files", "ls", "find")),
        *(("call", call(name, path="a")) for name in ("get_order_details", "WebFetch", "TodoRead")),
        *(("call", call(name, uri="file:///a")) for name in ("get_file_outline", "mcp__ide__getDiagnostics")),
    ],
)
def test_questions_are_told_by_their_whole_call(verb: str, known: ToolCall) -> None:
    found = read_subject(known)
    assert found is not None
    assert found.verb == verb
    assert found.resource.startswith(f"{known.name} {{")


@pytest.mark.parametrize(
    "known",
    [
        *(call(name, x=1) for name in ("mv", "touch", "send_email", "post_message", "book_flight", "think")),
        *(call(name, x=1) for name in ("execute_payment", "update_order", "create_issue", "TodoWrite", "x")),
        call("touch", path="a"),
        call("create_or_update_file", owner="o", repo="r", path="a"),
        call("bash", command="git commit -m x && git push"),
        call("bash", command="cd x && mkdir -p $X"),
        call("bash", command="pip install x"),
        call("bash", command="curl -X POST http://localhost"),
        call("run_tests", command="mv a b"),
        call("bash"),
    ],
    ids=lambda known: f"{known.name} {known.arguments}",
)
def test_receipts_and_unknown_tools_have_no_subject(known: ToolCall) -> None:
    assert read_subject(known) is None
    exchange = Exchange(call=known, result=ToolResult(id="1"))
    assert find_superseded([exchange, exchange]) == {}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat ./src/../a.py", read("a.py")), ("cat -n 'my file' 2>/dev/null", read("my file")),
        ('cat "a"b', read("ab")), ("nl -ba a", read("a")), ("cat a | head -5", read("a", None, 5)),
        ("head -n 20 a", read("a", None, 20)), ("head -20 a", read("a", None, 20)),
        ("tail -n 20 a", read("a", -20)), ("tail -n +20 a", read("a", 20)),
        ("sed -n '5,10p' a", read("a", 5, 10)), ("sed -n '5,$p' a", read("a", 5)),
        ("cd /w && cat a", read("/w/a")), ("cd x && cat /a", read("/a")),
        ("echo x > a", write("a")), ("echo x >> a", write("a")), ("cd /w && echo x > a", write("/w/a")),
        ("cat <<'EOF' > a\nx > y; rm z\nEOF", write("a")), ("cat > a <<EOF\n$x\nEOF\n", write("a")),
        ("echo x | tee -a a", write("a")), ("rm -rf a ./b", write("a", "b")),
        ("sed -i 's/x/y/' a", write("a")), ("sed -i '' -e 's/x/y/' a", write("a")),
        ("apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF", write("a")),
    ],
)  # fmt: skip
def test_plain_commands_are_understood(command: str, expected: Subject) -> None:
    assert sh(command) == expected


@pytest.mark.parametrize(
    "command",
    [
        "cat *.py", "cat $F", "cat `x`", "cat a b", "cat a; cat b", "cat a && cat b", "cat 'a", "cat >",
        "cat a | wc", "head -n 5 a | tail -n 2", "cat a | head -n 5 b", "head -n 0 a", "tail -n 0 a",
        "sed 's/x/y/' a", "sed -n '9,5p' a", "sed -n '/x/p' a", "(cat a)", "cat a > /dev/null", "head -c 5 a",
        "cat a 2>&1 > b > c", "echo x > a && cat a", "cat <<'EOF' > a\nx\nEOF\npython a", "pytest -q", "make",
        "git status", "git diff HEAD", "python a.py", "cat a |", "tail -f a",
    ],
)  # fmt: skip
def test_other_commands_are_observations(command: str) -> None:
    found = sh(command)
    assert found is not None
    assert found.verb == "call"


def test_quoted_operators_are_text() -> None:
    assert sh("grep '>' a") == Subject(verb="search", resource="$ grep '>' a")


def test_spaces_between_words_do_not_tell_commands_apart() -> None:
    assert sh("pytest   -q") == sh(" pytest -q ") != sh("pytest '-q '")


def test_the_folder_tells_commands_apart() -> None:
    inside = read_subject(call("bash", command="git log", cwd="/w"))
    assert sh("cd /w && git log") == inside != sh("git log")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"view_range": [2, 4]}, (2, 4)), ({"view_range": [1, -1]}, (None, None)),
        ({"line_start": "2", "line_end": 4.0}, (2, 4)), ({"start": 2, "end": 4}, (2, 4)),
        ({"startLine": 2}, (2, None)), ({"end_line": 4}, (None, 4)),
        ({"offset": 0, "limit": 4}, (None, 4)), ({"offset": -4}, (-4, None)),
        ({"offset": None, "pages": None}, (None, None)), ({"explanation": "to see"}, (None, None)),
    ],
)  # fmt: skip
def test_ranges_are_understood(arguments: dict[str, Any], expected: tuple[int | None, int | None]) -> None:
    assert read_subject(call("read_file", path="a", **arguments)) == read("a", *expected)


@pytest.mark.parametrize(
    "arguments",
    [
        {"offset": "many"}, {"offset": True}, {"view_range": [5, 2]}, {"view_range": [5]},
        {"limit": 0}, {"offset": -5, "limit": 2}, {"start": 10**12}, {"pages": "1-3"}, {"file": "b"},
        {"view_range": "12"}, {"ref": "x"},
    ],
)  # fmt: skip
def test_a_read_with_arguments_not_understood_is_only_replaced_by_its_equal(
    arguments: dict[str, Any],
) -> None:
    odd, whole = done("read_file", path="a", **arguments), done("read_file", path="a")
    assert find_superseded([odd, whole]) == {}
    assert find_superseded([odd, odd]) == {0: 1}


@pytest.mark.parametrize("path", ["src/a", "./src/a", "src//a", "src/x/../a", "src\\a", "file://src/a"])
def test_spellings_of_a_path_are_one(path: str) -> None:
    assert find_superseded([done("read_file", path=path), done("Read", file_path="src/a")]) == {0: 1}


@pytest.mark.parametrize("path", ["", " ", "a\nb"])
def test_what_cannot_be_a_path_is_not_one(path: str) -> None:
    assert read_subject(call("write_file", path=path)) is None


def test_case_of_a_path_is_kept() -> None:
    assert find_superseded([done("read_file", path="A"), done("read_file", path="a")]) == {}


def test_equal_arguments_are_equal_however_written() -> None:
    assert find_superseded([raw("get_user", '{"a":1,"b":2}'), raw("get_user", '{ "b": 2, "a": 1 }')]) == {
        0: 1
    }
    assert find_superseded([raw("get_user", '{"a": 1}'), raw("get_user", '{"a": 2}')]) == {}


@pytest.mark.parametrize(
    "text", ["", "{", "[1", "null", "[1, 2]", '"x"', "[" * 5000, '{"a":' * 5000, "9" * 5000]
)
def test_arguments_that_are_no_object_are_compared_as_they_are(text: str) -> None:
    for name in ("get_user", "read_file", "ls"):
        assert find_superseded([raw(name, text), raw(name, text + "1"), raw(name, text)])[0] == 2
    for name in ("bash", "write_file", "send", "apply_patch"):
        assert find_superseded([raw(name, text), raw(name, text)]) == {}


def test_nesting_counts_outside_strings_only() -> None:
    code = {"file_path": "a", "content": '\\"[{' * 1000, "more": [{}] * 1000}
    assert read_subject(call("Write", **code)) == write("a")


def test_arguments_too_deep_are_compared_as_they_are() -> None:
    for depth, found in ((200, {0: 1}), (201, {})):
        text = "[" * depth + "]" * depth
        assert find_superseded([raw("ls", text), raw("ls", f" {text}")]) == found


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ((None, None), (None, None)), ((5, 9), (None, None)), ((5, 9), (5, 9)), ((5, 9), (4, 10)),
        ((5, 9), (5, None)), ((5, 9), (None, 9)), ((-5, None), (None, None)), ((-5, None), (-6, None)),
    ],
)  # fmt: skip
def test_a_read_replaces_the_lines_it_contains(inner: tuple[int, int], outer: tuple[int, int]) -> None:
    log = [done("read", path="a", start=start, end=end) for start, end in (inner, outer)]
    assert find_superseded(log) == {0: 1}
    assert find_superseded(log[::-1]) == ({0: 1} if inner == outer else {})


@pytest.mark.parametrize("other", [(6, 10), (1, 5), (10, None), (-100, None)])
def test_a_read_replaces_no_lines_that_it_does_not_contain(other: tuple[int, int | None]) -> None:
    log = [done("read", path="a", start=start, end=end) for start, end in ((5, 9), other)]
    assert find_superseded(log) == find_superseded(log[::-1]) == {}


def test_lines_from_the_end_are_not_known_to_be_among_lines_from_the_start() -> None:
    assert find_superseded([done("bash", command="tail -n 5 a"), done("bash", command="tail -n +2 a")]) == {}


def test_a_write_makes_earlier_reads_stale_and_stays() -> None:
    whole, part, other = (
        done("read", path="a"),
        done("read", path="a", offset=5, limit=2),
        done("read", path="b"),
    )
    log = [whole, part, done("edit", path="a"), part, other, done("write", path="a")]
    assert find_superseded(log) == {0: 5, 1: 5, 3: 5}


def test_a_patch_makes_reads_of_all_its_files_stale() -> None:
    patch = "*** Update File: a\n*** Update File: b\n"
    log = [done("read", path="a"), done("read", path="b"), done("read", path="c")]
    assert find_superseded([*log, done("apply_patch", patch=patch)]) == {0: 3, 1: 3}


def test_a_failed_write_replaces_nothing_and_stays() -> None:
    assert find_superseded([done("read", path="a"), failed("write", path="a")]) == {}
    assert find_superseded([failed("write", path="a"), done("write", path="a"), done("read", path="a")]) == {}


def test_a_failed_read_replaces_nothing_and_is_replaced_by_any_success() -> None:
    assert find_superseded([done("read", path="a"), failed("read", path="a"), failed("read", path="a")]) == {}
    assert find_superseded([failed("read", path="a"), done("read", path="a", offset=5, limit=2)]) == {0: 1}


def test_a_command_that_fails_again_replaces_its_failure_but_no_success() -> None:
    passed, broken = done("bash", command="pytest"), failed("bash", command="pytest")
    assert find_superseded([broken, passed, broken]) == {0: 2}
    assert find_superseded([passed, broken, passed]) == {0: 2, 1: 2}


@pytest.mark.parametrize("name", ["grep", "list_dir", "get_user"])
def test_repetition_leaves_the_last(name: str) -> None:
    assert find_superseded([done(name, x=1), done(name, x=1), done(name, x=2), done(name, x=1)]) == {
        0: 3,
        1: 3,
    }


def test_verbs_and_tools_do_not_mix() -> None:
    assert find_superseded([done("get_user", x=1), done("get_order", x=1), done("list_user", x=1)]) == {}


def test_a_shell_read_and_a_file_read_are_the_same() -> None:
    shown = [done("bash", command=command) for command in ("sed -n '5,9p' a", "cat ./a")]
    log = [*shown, done("Read", file_path="a")]
    assert find_superseded(log) == {0: 2, 1: 2}


def test_a_write_makes_only_reads_stale() -> None:
    def listing(known: ReadableCall) -> Subject | None:
        return Subject(verb="list", resource="a") if known.name == "ls" else None

    assert find_superseded([done("ls"), done("write", path="a")], table=(listing, *SUBJECT_READERS)) == {}


def test_own_readers_go_in_front() -> None:
    def pages(known: ReadableCall) -> Subject | None:
        return Subject(verb="call", resource="page") if known.name == "turn_page" else None

    log = [done("turn_page", to=1), done("ls"), done("turn_page", to=2), done("ls")]
    assert find_superseded(log) == {1: 3}
    assert find_superseded(log, table=(pages, *SUBJECT_READERS)) == {0: 2, 1: 3}


UNITS = ["a", "'", '"', '\\"', ";", "|", "\n", "<<", "[", "{}", "[],", "*** Add File: ", "cat\0", "''a", "-"]


@pytest.mark.parametrize("unit", UNITS)
def test_a_long_run_of_anything_has_an_answer(unit: str) -> None:
    text = unit * (250_000 // len(unit))
    wrapped = json.dumps({"command": f"cat {text}", "path": text})
    log = [
        raw(text, "{}"),
        *(raw(name, wrapped) for name in ("bash", "apply_patch", "read")),
        raw("ls", text),
    ]
    assert find_superseded(log) == {}
    assert find_superseded([*log, *log]).items() >= {3: 8, 4: 9}.items()


def test_many_ranges_of_one_file_are_compared_in_few_steps() -> None:
    count = 20_000
    ends = [(2 + i * 7919 % count, 2 * count + i * 104729 % count) for i in range(count)]
    log = [
        done("read", path="a", start=first, end=last) for first, last in (*ends, (count // 2, 5 * count // 2))
    ]
    replaced = [old for old, new in find_superseded(log).items() if new == count]
    assert replaced == [i for i, (a, b) in enumerate(ends) if a >= count // 2 and b <= 5 * count // 2]


ranges = st.one_of(st.none(), st.integers(-3, 6))
calls = st.one_of(
    st.builds(lambda p, a, b: call("read", path=p, start=a, end=b), st.sampled_from("ab"), ranges, ranges),
    st.builds(lambda p: call("write", path=p), st.sampled_from("ab")),
    st.builds(lambda c: call("bash", command=c), st.sampled_from(["cat a", "pytest", "rm b", "tail -5 a"])),
    st.builds(lambda n, a: raw(n, a).call, st.sampled_from(["grep", "x", "read"]), st.text()),
)
results = st.builds(ToolResult, id=st.just("1"), error=st.booleans())
logs = st.lists(st.builds(Exchange, call=calls, result=results), max_size=25)


@given(logs)
def test_the_map_is_one_step_forward_to_a_result_that_stands(log: list[Exchange]) -> None:
    found = find_superseded(log)
    assert all(old < new < len(log) for old, new in found.items())
    assert found.keys().isdisjoint(found.values())
    assert list(found) == sorted(found)


@given(logs, logs)
def test_later_exchanges_only_add(log: list[Exchange], more: list[Exchange]) -> None:
    before, after = find_superseded(log), find_superseded([*log, *more])
    assert before.keys() <= after.keys()
    assert all(after[old] == new or after[old] >= len(log) for old, new in before.items())


@given(logs)
def test_the_latest_of_all_pairs_is_found(log: list[Exchange]) -> None:
    places = range(len(log))
    pairs = [(old, new) for new in places for old in range(new) if find_superseded([log[old], log[new]])]
    assert find_superseded(log) == dict(sorted(pairs))


@given(logs)
def test_receipts_stay_and_failures_replace_only_failed_commands(log: list[Exchange]) -> None:
    for old, new in find_superseded(log).items():
        about, by = read_subject(log[old].call), read_subject(log[new].call)
        assert about is not None
        assert by is not None
        assert about.verb != "write"
        assert not log[new].result.error or (log[old].result.error and about.verb == "call")
        assert by == about or by.verb in {"read", "write"}


@given(st.text(), st.text())
def test_any_name_and_arguments_have_an_answer(name: str, arguments: str) -> None:
    exchange = raw(name, arguments)
    assert find_superseded([exchange, exchange]) in ({}, {0: 1})
    assert read_subject(exchange.call) == read_subject(exchange.call)


@given(st.text(alphabet="cat sedn-5,p$'\"|><&;\n\\/*", max_size=40))
def test_any_command_has_an_answer(command: str) -> None:
    found = sh(command)
    assert found is None or found.verb in {"read", "write", "list", "search", "call"}
