"""The command itself, and the commands that only look: check, explain, diff."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from lamina.cli import COMMANDS, FORMER
from lamina.dialects import DIALECTS
from tests.cli.running import BRIEF, HELLO, LONGER, SHORT, long_session, run, saved, shell
from tools.cli_help import PAGE, outdated, rewritten

ORPHAN: dict[str, Any] = {"messages": [HELLO, {"role": "tool", "tool_call_id": "q", "content": "y"}]}


NO_WINDOW = "a window has at least one token; leave it out for the usual one"


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.code == 0
    named = re.findall(
        r"^  ([a-z]+) +\S", done.out.partition("start:")[2].partition("examples:")[0], re.MULTILINE
    )
    assert sorted(named) == sorted(COMMANDS)
    assert run() == (2, "", done.out)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_examples_and_is_calm(command: str) -> None:
    done = run(*filter(None, [command]), "--help")
    assert done.code == 0
    assert done.err == ""
    assert "\nexamples:\n  lamina " in done.out
    assert "!" not in done.out
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 110


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_in_help_are_commands_that_parse(command: str) -> None:
    if command == "store":  # each of its actions has options of its own
        return
    options = set(re.findall(r"^  (?:-[hf], )?(--[a-z]+)", run(command, "--help").out, re.MULTILINE))
    examples = re.findall(rf"^  lamina {command} (.*)$", run(command, "--help").out, re.MULTILINE)
    assert examples
    for example in examples:
        assert set(re.findall(r"--[a-z]+", example.partition("|")[0])) <= options


def test_the_page_shows_the_current_help() -> None:
    assert outdated(PAGE.read_text(encoding="utf-8")) == []


def test_a_page_with_old_help_is_noticed_and_rewritten() -> None:
    page = PAGE.read_text(encoding="utf-8")
    old = page.replace("  --seed N ", "  --root N ")
    assert outdated(old) == ["lamina demo"]
    assert rewritten(old) == page
    assert outdated(page.replace("<!-- help: fit -->", "")) == ["lamina fit"]


def test_version_is_that_of_the_package() -> None:
    assert re.fullmatch(r"lamina \d+\.\d+\.\d+\S*\n", run("--version").out)


def test_help_and_version_import_nothing_but_the_command_line(tmp_path: Path) -> None:
    code = (
        "import sys, lamina; known = set(sys.modules); from lamina.cli import main; main(['--help']); "
        "main(['--version']); new = set(sys.modules) - known; "
        "print(sorted(m for m in new if m.partition('.')[0] in ('lamina', 'splintr')))"
    )
    done = shell(f'"{sys.executable}" -c "{code}"', tmp_path)
    assert done.out.splitlines()[-1] == str(
        [
            "lamina.cli",
            "lamina.cli.output",
            "lamina.cli.parser",
            "lamina.core",
            "lamina.core.text",
            "lamina.core.text.characters",  # what a terminal would obey, for every line that is printed
            "lamina.errors",
        ]
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tools"], f"there is no command tools any more: {FORMER['tools']}; see lamina --help"),
        (["frob"], f"unknown command 'frob'; use one of {', '.join(COMMANDS)}; see lamina --help"),
        (["--frob"], "unrecognized arguments: --frob; see lamina --help"),
        (["fit"], "the following arguments are required: FILE; see lamina fit --help"),
        (
            ["fit", "-", "--window", "many"],
            "argument --window: 'many' is not a whole number; see lamina fit --help",
        ),
        (
            ["fit", "-", "--win", "9"],
            "unrecognized arguments: --win 9, did you mean --window; see lamina fit --help",
        ),
        *(
            (
                [*command, "--window", "0"],
                f"argument --window: {NO_WINDOW}; see lamina {command[0]} --help",
            )
            for command in (["fit", "-"], ["demo"], ["chat"], ["doctor"], ["serve"], ["run"])
        ),
        (["fit", "-", "--window", "-1"], "argument --window: '-1' is below 0; see lamina fit --help"),
        (
            ["inspect", "--port", "-1"],
            "argument --port: '-1' is below 0; see lamina inspect --help",
        ),
        (
            ["cost", "-", "--since", "9999999d"],
            "argument --since: '9999999d' is neither a date nor like 7d; see lamina cost --help",
        ),
        (
            ["store", "prune", "--size=-1GB"],
            "argument --size: '-1GB' is not a size such as 2GB; see lamina store prune --help",
        ),
        (
            ["store", "prune", "--size", "inf"],
            "argument --size: 'inf' is not a size such as 2GB; see lamina store prune --help",
        ),
        (
            ["store", "prune", "--days", "-1"],
            "argument --days: '-1' is below 0; see lamina store prune --help",
        ),
        (
            ["run", "--gateway", "http://[", "--", "true"],
            "--gateway: 'http://[' is not an address; start one with lamina serve, or leave --gateway out",
        ),
        (
            ["fit", "-", "--dialect", "latin"],
            f"dialect: unknown dialect 'latin'; use one of {', '.join(DIALECTS)}",
        ),
        (
            ["fit", "-", "--check", "--dialect", "latin"],
            f"dialect: unknown dialect 'latin'; use one of {', '.join(DIALECTS)}",
        ),
        (["diff", "-"], "the following arguments are required: AFTER; see lamina diff --help"),
        (["store"], "the following arguments are required: ACTION; see lamina store --help"),
        (["diff", "-", "-"], "diff: both requests are standard input; give a file for one of them"),
        (["demo", "--seed", "x"], "argument --seed: 'x' is not a whole number; see lamina demo --help"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments: list[str], said: str) -> None:
    assert run(*arguments, given=json.dumps(SHORT).encode()) == (2, "", f"lamina: {said}\n")


@pytest.mark.parametrize("command", [["fit"], ["fit", "--explain"]])
@pytest.mark.parametrize(
    ("request_", "place"),
    [
        ({}, "request"),
        ({"messages": "hi"}, "request"),
        ({"messages": [{"role": "boss", "content": "x"}]}, r"messages\[0\]\.role"),
        (
            {"messages": [HELLO, {"role": "user", "content": [{"type": 3}]}]},
            r"messages\[1\]\.content\[0\]\.type",
        ),
    ],
)
def test_what_is_no_request_is_placed(tmp_path: Path, command: list[str], request_: Any, place: str) -> None:
    done = run(*command, saved(tmp_path, request_))
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(rf"lamina: {place}: [^;\n]+; .+\n", done.err)


def test_a_bug_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> int:
        raise KeyError("lost")

    monkeypatch.setattr("lamina.cli.demo.run", broken)
    assert run("demo") == (70, "", "lamina: KeyError: 'lost'; this is a bug in lamina, please report it\n")


def test_check_says_nothing_on_standard_output_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert run("fit", "--check", saved(tmp_path, SHORT)) == (0, "", "no rule of openai_chat is broken\n")


def test_check_prints_one_line_for_each_violation(tmp_path: Path) -> None:
    done = run("fit", "--check", saved(tmp_path, ORPHAN))
    assert (done.code, done.err) == (1, "")
    assert re.fullmatch(r"calls_and_results_pair  messages\[1\]  .*'q'\n", done.out)


def test_check_gives_the_same_as_json(tmp_path: Path) -> None:
    done = run("fit", "--check", saved(tmp_path, ORPHAN), "--json")
    found = json.loads(done.out)
    assert (done.code, found["dialect"]) == (1, "openai_chat")
    assert [(each["rule"], each["place"]) for each in found["violations"]] == [
        ("calls_and_results_pair", "messages[1]")
    ]
    assert json.loads(run("fit", "--check", saved(tmp_path, SHORT), "--json").out)["violations"] == []


def test_what_fit_gives_passes_check(tmp_path: Path) -> None:
    saved(tmp_path, long_session(12))
    done = shell(
        "set -o pipefail; lamina fit request.json --window 5000 2>/dev/null | lamina fit - --check", tmp_path
    )
    assert done == (0, "", "no rule of openai_chat is broken\n")


def test_explain_prints_a_table_and_a_bar_for_each_layer(tmp_path: Path) -> None:
    done = run("fit", "--explain", saved(tmp_path, {**LONGER, "max_completion_tokens": 10}), "--window", "60")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    table, bars, price = lines[:8], lines[8:-1], lines[-1]
    assert table == [
        "where    form  tokens  what                            why",
        "system   full       7  system                          in full",
        "history  full       5  user                            in full",
        "history  full       6  assistant                       in full",
        "prompt   full       6  user                            in full",
        "",
        "30 of 50 tokens (exact): system 7 + history 11 + prompt 6 + framing 6",
        "",
    ]
    assert bars == [
        f"system   {'█' * 4}{'·' * 26}         7   14%",
        f"history  {'█' * 6}{'·' * 24}        11   22%",
        f"prompt   {'█' * 3}{'·' * 27}         6   12%",
        f"framing  {'█' * 3}{'·' * 27}         6   12%",
        f"free     {'█' * 12}{'·' * 18}        20   40%",
    ]
    assert price.startswith("input: $0.")


def test_explain_says_what_was_inferred_of_the_model_and_no_price(tmp_path: Path) -> None:
    done = run("fit", "--explain", saved(tmp_path, {"model": "gpt-7", "messages": [HELLO]}))
    like = "window, tokens and cache as gpt-6.1-sol's, since gpt-7 is on no list; prices not known"
    assert done.out.splitlines().count(like) == 1
    assert "$" not in done.out


def test_explain_reads_a_ledger_and_writes_none(tmp_path: Path) -> None:
    path, ledger = saved(tmp_path, long_session(12)), tmp_path / "ledger.json"
    window = ("--window", "5000", "--ledger", ledger)
    cut = json.loads(run("fit", "--explain", path, *window, "--json").out)["cut"]
    assert (cut["number"], cut["reason"]) == (1, "over the trigger")
    assert not ledger.exists()
    run("fit", path, *window)
    assert json.loads(run("fit", "--explain", path, *window, "--json").out)["cut"] is None


def test_diff_says_that_a_request_continues_another(tmp_path: Path) -> None:
    one, two = saved(tmp_path, SHORT, "one.json"), saved(tmp_path, LONGER, "two.json")
    done = run("diff", one, two)
    assert done == (
        0,
        f"{two} continues {one}: 18 tokens kept, 2 new blocks, from messages[2].content[0] on\n",
        "",
    )
    assert run("diff", one, one).out == f"{one} continues {one}: 18 tokens kept, nothing new\n"


def test_diff_says_where_and_why_two_requests_part(tmp_path: Path) -> None:
    one = saved(tmp_path, LONGER, "one.json")
    changed = {
        "system changed": [{**BRIEF, "content": "Be long."}, *LONGER["messages"][1:]],
        "edited": [BRIEF, {**HELLO, "content": "Help"}, *LONGER["messages"][2:]],
        "rewound": [BRIEF, HELLO],
    }
    places = {"system changed": 0, "edited": 1, "rewound": 2}
    for cause, messages in changed.items():
        two = saved(tmp_path, {**LONGER, "messages": messages}, "two.json")
        done = run("diff", one, two)
        assert (done.code, done.err) == (1, "")
        where, why, tokens, advice = done.out.splitlines()
        assert where.startswith(f"{two} parts from {one} at messages[{places[cause]}].content[0], byte ")
        assert why.startswith(f"cause:  {cause}: ")
        found = re.fullmatch(r"tokens: (\d+) of 30 kept, (\d+) lost", tokens)
        assert found, tokens
        assert int(found[1]) + int(found[2]) == 30
        assert advice.startswith("advice: ")


def test_diff_notices_other_tools(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}
    one = saved(tmp_path, SHORT, "one.json")
    two = saved(tmp_path, {**SHORT, "tools": [tool]}, "two.json")
    done = run("diff", one, two)
    assert done.code == 1
    assert "cause:  tool added: a tool was added: shell\n" in done.out
    assert "tokens: 0 of 18 kept, 18 lost\n" in done.out


def test_diff_as_json(tmp_path: Path) -> None:
    one, two = saved(tmp_path, LONGER, "one.json"), saved(tmp_path, SHORT, "two.json")
    found = json.loads(run("diff", one, two, "--json").out)
    assert (found["continues"], found["cause"], found["at"]) == (False, "rewound", 2)
    assert (found["kept"], found["lost"]) == (18, 12)
    assert (found["was"], found["entry"]) == ("messages[2].content[0]", "")
    assert json.loads(run("diff", two, one, "--json").out)["continues"] is True


def test_diff_under_the_rules_of_a_cache(tmp_path: Path) -> None:
    long = {**SHORT, "model": "gpt-6-sol", "messages": [BRIEF, {**HELLO, "content": "many words " * 2_000}]}
    one = saved(tmp_path, long, "one.json")
    two = saved(tmp_path, {**long, "reasoning_effort": "low"}, "two.json")
    assert run("diff", one, two).out.endswith("nothing new\nalso differing: effort\n")
    done = run("diff", one, two, "--rules", "auto")
    assert done.code == 1
    assert "cause:  effort changed: " in done.out
    assert "more than reading them" in done.out
    assert "rules:  OpenAI API, GPT-5.6 and later, " in done.out
    assert "expired" in run("diff", one, one, "--rules", "openai", "--gap", "4000").out
    assert run("diff", one, two, "--rules", "unknown").code == 0


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--rules", "nowhere", "--rules: unknown rules 'nowhere'; use auto, a TOML file, or one of "),
        ("--gap", "-1", "argument --gap: '-1' is not a number of seconds, 0 or more"),
        ("--gap", "nan", "argument --gap: 'nan' is not a number of seconds, 0 or more"),
    ],
)
def test_diff_refuses_rules_and_times_that_are_none(
    tmp_path: Path, option: str, value: str, said: str
) -> None:
    one = saved(tmp_path, SHORT, "one.json")
    done = run("diff", one, one, option, value)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_diff_names_the_file_that_is_no_request(tmp_path: Path) -> None:
    one, two = saved(tmp_path, SHORT, "one.json"), saved(tmp_path, {"messages": []}, "two.json")
    done = run("diff", one, two)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"lamina: {two}: ")
    assert done.err.count("\n") == 1
