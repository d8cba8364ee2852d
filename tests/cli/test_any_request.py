"""Whatever JSON a command is given, it ends with an answer or with one line that says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.running import run, saved

CALL = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.md"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "One line.\n" * 400}
CLAUDE: dict[str, Any] = {
    "model": "claude-opus-4-5",
    "max_tokens": 500,
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [RESULT]},
        {"role": "assistant", "content": "It has one line, many times."},
        {"role": "user", "content": "Which one?"},
    ],
}

WORDS = st.sampled_from(
    "user assistant tool system text tool_use tool_result thinking image_url function call_1 claude-x".split()
)
FIELDS = st.sampled_from(
    "role content type text tool_calls tool_call_id id name function arguments input tool_use_id thinking "
    "signature image_url url source data cache_control".split()
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)
ROLES = st.sampled_from(["user", "assistant", "tool", "system", "developer", "function"])
MESSAGES = st.builds(
    lambda role, content, rest: {**rest, "role": role, "content": content},
    ROLES | VALUES, VALUES, st.dictionaries(FIELDS, VALUES, max_size=3),
)  # fmt: skip
REQUESTS = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGES | VALUES, max_size=5) | VALUES},
    optional={"model": WORDS | VALUES, "system": VALUES, "tools": VALUES, "max_tokens": VALUES},
)


def test_a_request_of_anthropic_goes_through_every_command(tmp_path: Path) -> None:
    path = saved(tmp_path, CLAUDE)
    done = run("fit", path, "--window", "1500", "--json")
    assert done.code == 0
    manifest = json.loads(done.out)["manifest"]
    assert [row["form"] for row in manifest["rows"] if row["form"] != "full"] == ["compact"]
    assert run("fit", "--check", path) == (0, "", "no rule of anthropic is broken\n")
    assert run("fit", "--explain", path, "--window", "1500").code == 0
    assert run("diff", path, path).code == 0


@pytest.mark.parametrize("dialect", [[], ["--dialect", "anthropic"], ["--dialect", "openai_chat"]])
@given(request_=REQUESTS)
def test_any_request_has_an_answer_or_one_line(dialect: list[str], request_: Any) -> None:
    text = json.dumps(request_).encode()
    for options in (["--window", "400"], ["--check"], ["--explain", "--window", "9000"]):
        command = ["fit", "-", *options]
        done = run(*command, *dialect, given=text)
        assert done.code in (0, 1, 2, 3), done.err
        if done.code > 1:
            assert (done.out, done.err.count("\n")) == ("", 1)
