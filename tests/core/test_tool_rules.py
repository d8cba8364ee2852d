"""What a caller decided about single tools: results that stay whole, go first, or leave no trace."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import BadInput, Budget, BuildMemo, Envelope, Form, Options, Policy, Role, Segment, build, recall
from lamina.core import CHARS4, Raw, text_of
from lamina.core.tool_rules import WHOLE_PART, ToolRule, ToolRules, find_rule
from lamina.fitting.policy import load_policy
from lamina.segments import assistant, call, result, selected_text, system, user
from tests.core.conversations import build_each, build_next

BUDGET = Budget(window=4_000, reserve=0)
CODEWORD = "zeppelin_4711"
RULES: dict[str, ToolRule] = {"read_spec": "whole", "grep": "short", "vault": "never"}
TOOLS = ("read_spec", "grep", "vault", "read_file")


def use_tool(tool: str, number: int, *, lines: int = 40) -> list[Segment]:
    """One step: the model says something, calls a tool, and gets a result with a name of its own."""
    text = f"{tool}_{number} = '{CODEWORD}'\n" + f"line {number} of {tool}\n" * lines
    return [
        assistant(f"Step number {number}."),
        call(tool, {"what": f"{tool}/{number}.{CODEWORD}"}, id=f"c{number}"),
        result(text, id=f"c{number}", name=tool, key=f"{tool}-{number}"),
    ]


def grow(
    tools: list[str], rules: ToolRules, *, budget: Budget = BUDGET, lines: int = 40, ask: bool = False
) -> tuple[list[Segment], list[Envelope]]:
    """A conversation that uses one tool after the other. Every request keeps all laws."""
    logs: list[list[Segment]] = []
    log: list[Segment] = [system("You are careful."), user("Review all of it.")]
    for number, tool in enumerate(tools):
        log += use_tool(tool, number, lines=lines)
        if ask and number % 3 == 2:
            log += [assistant("Done."), user(f"What did {CODEWORD} say in step {number}?")]
        logs.append(list(log))
    return log, build_each(logs, budget=budget, options=Options(tools=rules), memo=BuildMemo())


def forms_of(envelope: Envelope, tool: str) -> list[Form]:
    """The forms of the results of a tool, oldest first."""
    entries = envelope.entries
    return [entry.form for entry in entries if entry.segment.key.startswith(f"{tool}-")]


def own_text(envelope: Envelope) -> str:
    """Everything that lamina itself says in a request."""
    return "\n".join(text_of(entry.parts) for entry in envelope.entries if entry.segment.is_own)


def test_results_of_a_whole_tool_outlive_every_cut() -> None:
    tools = ["read_spec", *["read_file"] * 40]
    _, envelopes = grow(tools, RULES)
    assert len(envelopes[-1].ledger.cuts) >= 2
    assert forms_of(envelopes[-1], "read_spec") == [Form.FULL]
    _, without_rules = grow(tools, {})
    assert forms_of(without_rules[-1], "read_spec") != [Form.FULL]


def test_whole_results_hold_a_part_of_the_room_and_the_newest_win() -> None:
    _, envelopes = grow(["read_spec"] * 30, {"read_spec": "whole"})
    for envelope in envelopes:
        if envelope.cut is None:
            continue
        forms = forms_of(envelope, "read_spec")
        first_whole = forms.index(Form.FULL)
        assert set(forms[first_whole:]) == {Form.FULL}
        results = [entry for entry in envelope.entries if entry.segment.key.startswith("read_spec-")]
        held = sum(entry.tokens for entry in results[:-1] if entry.form is Form.FULL)
        assert held <= BUDGET.window // WHOLE_PART
    assert envelopes[-1].ledger.cuts


def test_a_whole_result_yields_to_the_room() -> None:
    log, envelopes = grow(["read_spec", "read_file", "read_file"], {"read_spec": "whole"}, lines=200)
    tight = build(
        log,
        budget=Budget(window=1_700, reserve=0),
        ledger=envelopes[-1].ledger,
        counter=CHARS4,
        options=Options(tools={"read_spec": "whole"}),
    )
    assert tight.tokens <= 1_700
    assert forms_of(tight, "read_spec") != [Form.FULL]


def test_a_whole_result_yields_before_what_cannot_be_recovered() -> None:
    log = [system("You are careful."), user("Review all of it."), *use_tool("read_spec", 0, lines=90)]
    log += [assistant("Done."), user("And this."), selected_text("It is about marbles. " * 80, key="marked")]
    for number in range(1, 4):
        log += use_tool("read_file", number, lines=20)
    budget = Budget(window=1_000, reserve=0)
    envelope = build_next(log, budget=budget, options=Options(tools={"read_spec": "whole"}))
    assert envelope.entry("marked").form is Form.FULL
    assert forms_of(envelope, "read_spec") != [Form.FULL]


def test_results_of_a_short_tool_go_first() -> None:
    tools = ["read_file", "read_file", "grep", "grep", "read_file", "read_file", "read_file"] * 4
    _, envelopes = grow(tools, RULES, budget=Budget(window=4_000, reserve=0, target=0.7))
    first_cut = next(envelope for envelope in envelopes if envelope.cut)
    # The newest steps are spared, whatever their tools are.
    assert Form.FULL not in forms_of(first_cut, "grep")[:4]
    assert first_cut.entry("grep-9").form is Form.STUB
    assert first_cut.entry("read_file-6").form is Form.FULL
    whys = {entry.why for entry in first_cut.entries if entry.segment.key.startswith("grep-")}
    assert "results of this tool go first, by its rule" in whys


def test_nothing_of_a_tool_with_never_is_kept_in_digests_or_reminders() -> None:
    tools = ["vault"] * 24
    log, envelopes = grow(tools, RULES, ask=True)
    own_texts = "\n".join(map(own_text, envelopes))
    assert "messages folded" in own_texts
    assert "vault_" not in own_texts
    assert "vault/" not in own_texts
    _, without_rules = grow(tools, {}, ask=True)
    assert "vault_" in "\n".join(map(own_text, without_rules))
    # Whatever is hidden can still be asked for by its handle.
    (segment,) = recall(log, "vault-0")
    assert CODEWORD in text_of(segment.parts)


def test_an_old_result_of_a_tool_with_never_leaves_no_outline() -> None:
    _, envelopes = grow(["vault", "read_file"] * 10, RULES, lines=120)
    for envelope in envelopes:
        forms = forms_of(envelope, "vault")
        assert Form.COMPACT not in forms[:-3]


def test_calls_that_the_server_made_follow_the_rules() -> None:
    block: dict[str, Any] = {
        "type": "mcp_tool_use",
        "id": "m1",
        "name": "vault",
        "server_name": "tracker",
        "input": {"what": f"vault/{CODEWORD}"},
    }
    answer = {
        "type": "mcp_tool_result",
        "tool_use_id": "m1",
        "content": [{"type": "text", "text": "vault_1"}],
    }
    parts = tuple(Raw(data=data, dialect="anthropic") for data in (block, answer))
    server_step = Segment(role=Role.ASSISTANT, kind="assistant", parts=parts)
    log = [user("Go."), server_step]
    for number in range(24):
        log += use_tool("read_file", number)
    quoting = build(log, budget=BUDGET, counter=CHARS4)
    silent = build(log, budget=BUDGET, counter=CHARS4, options=Options(tools={"vault": "never"}))
    assert "vault" in own_text(quoting)
    assert "vault" not in own_text(silent)


@given(st.lists(st.sampled_from(TOOLS), min_size=6, max_size=14), st.integers(20, 120))
def test_rules_keep_every_law(tools: list[str], lines: int) -> None:
    _, envelopes = grow(tools, RULES, lines=lines, ask=True)
    for envelope in envelopes:
        assert "vault_" not in own_text(envelope)
        assert "vault/" not in own_text(envelope)


def test_rules_that_name_no_tool_of_the_conversation_change_no_byte() -> None:
    tools = ["read_file", "run"] * 12
    _, without = grow(tools, {})
    _, beside = grow(tools, RULES)
    assert [each.prefix for each in without] == [each.prefix for each in beside]


@pytest.mark.parametrize(
    ("tool", "rule"),
    [
        ("grep", "short"),
        ("mcp__tracker__search", "whole"),
        ("mcp__vault__read", "never"),
        ("mcp_other", None),
        ("grep2", None),
    ],
)
def test_the_longest_name_that_fits_decides(tool: str, rule: str | None) -> None:
    rules: ToolRules = {"mcp__*": "whole", "mcp__vault__*": "never", "grep": "short"}
    assert find_rule(rules, tool) == rule


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ({"grep": "shrot"}, "the rule of the tool 'grep' is 'shrot'"),
        ({"grep": 1}, "the rule of the tool 'grep' is 1"),
        ({"": "short"}, "'' is no name of a tool"),
        ("defer", "tools is 'defer'"),
    ],
)
def test_a_rule_that_is_none_is_refused(rules: Any, problem: str) -> None:
    for make in (Policy, Options):
        with pytest.raises(BadInput) as caught:
            make(tools=rules)
        assert problem in str(caught.value)
        assert "'whole', 'short', 'never'" in str(caught.value)


def test_a_settings_file_has_the_same_rules() -> None:
    policy = load_policy({"tools": {"grep": "short"}})
    assert policy == Policy(tools={"grep": "short"})
    assert load_policy(policy.dump()) == policy
    with pytest.raises(BadInput, match=r"the rule of the tool 'grep' is 'shrot'; .* 'never'"):
        load_policy({"tools": {"grep": "shrot"}})
