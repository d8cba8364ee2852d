"""Capabilities 35 to 38, of system 004: trimming above a share of the window, to a boundary that rises."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lamina import (
    Budget,
    BudgetExceeded,
    Envelope,
    Form,
    Ledger,
    RequestHead,
    Role,
    Segment,
    build,
    fit_request,
)
from lamina.agent import Agent, open_for
from lamina.clients.scripted import ScriptedClient
from lamina.core.tokens import RFC
from lamina.dialects import DIALECTS
from lamina.formats.checkpoint import INDEX, MIRROR, read, trim_index, with_index, write
from lamina.segments import assistant, call, result, system, user
from lamina.stores.memory import MemoryStore
from tests.capabilities.walking import NO_SETTINGS, awaited, messages

TRIMMED = "[trimmed]"


def turns(count: int, *, start: int = 0, letters: int = 400) -> list[Segment]:
    """Turns of question, call, result and reply; results are long."""
    log: list[Segment] = []
    for number in range(start, start + count):
        log += [
            user(f"Question {number}", pinned=True),
            call("read", {"path": f"{number}.py"}, id=f"c{number}"),
            result("r" * letters, id=f"c{number}", name="read"),
            assistant("a" * letters),
        ]
    return log


def trimmed(
    log: list[Segment], window: int, *, ledger: Ledger | None = None, threshold: float = 0.8, low: float = 0.8
) -> Envelope:
    """As that system does it: above a share of the window, replies and results become a placeholder."""
    budget = Budget(window=window, reserve=0, trigger=threshold, target=low, keep_last=2)
    return build(log, budget=budget, ledger=ledger or Ledger(), counter=RFC, options=MIRROR)


def sent(envelope: Envelope) -> list[tuple[str, str]]:
    return messages(DIALECTS["openai_chat"].wire.render(envelope))


ASK = user("And now?", pinned=True)
RULES = system("You are careful.", pinned=True)


def test_35_under_the_threshold_nothing_changes_and_above_it_the_oldest_are_trimmed() -> None:
    log = [RULES, *turns(8), ASK]
    whole = build(log, counter=RFC, options=MIRROR)
    under = trimmed(log, int(whole.tokens / 0.8) + 1)
    assert under.cut is None
    assert sent(under) == sent(whole)
    over = trimmed(log, int(whole.tokens / 0.8) - 1)
    assert over.cut is not None
    assert over.tokens <= 0.8 * (whole.tokens / 0.8 - 1)
    texts = [text for _, text in sent(over)]
    assert texts[3] == TRIMMED
    assert TRIMMED not in texts[-5:]


def test_35_user_and_system_text_is_never_trimmed_and_structure_stays() -> None:
    log = [RULES, *turns(10), ASK]
    envelope = trimmed(log, 1_400)
    before, after = sent(build(log, counter=RFC, options=MIRROR)), sent(envelope)
    assert [role for role, _ in after] == [role for role, _ in before]
    assert [pair for pair in after if pair[0] in {"user", "system"}] == [
        pair for pair in before if pair[0] in {"user", "system"}
    ]
    request = DIALECTS["openai_chat"].wire.render(envelope)
    asked = [one["id"] for message in request["messages"] for one in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in request["messages"] if message["role"] == "tool"]
    assert asked == answered == [f"c{number}" for number in range(10)]
    assert DIALECTS["openai_chat"].wire.check(request) == []


def test_35_what_cannot_fit_is_an_error_and_not_a_request_that_is_too_large() -> None:
    with pytest.raises(BudgetExceeded) as caught:
        trimmed([RULES, *turns(4), ASK], 60)
    assert caught.value.floor > 60


def lowered(envelope: Envelope) -> list[int]:
    return [at for at, (_, text) in enumerate(sent(envelope)) if text == TRIMMED]


def test_36_the_boundary_only_rises_and_lives_in_what_is_saved() -> None:
    log = [RULES, *turns(8)]
    first = trimmed([*log, ASK], 1_800)
    saved = json.loads(json.dumps(first.ledger.dump()))
    log += [ASK, *turns(1, start=8, letters=10)]
    resumed = trimmed([*log, ASK], 1_800, ledger=Ledger.load(saved))
    at_once = trimmed([*log, ASK], 1_800, ledger=first.ledger)
    assert sent(resumed) == sent(at_once)
    assert set(lowered(first)) <= set(lowered(resumed))
    wide = trimmed([*log, ASK], 100_000, ledger=Ledger.load(saved))
    assert lowered(wide) == lowered(first)
    assert sent(wide)[: len(sent(first)) - 1] == sent(first)[:-1]


def cuts(low: float) -> int:
    """How many cuts thirty turns take that trim to this share of the window."""
    ledger = Ledger()
    log: list[Segment] = [RULES]
    for number in range(30):
        log += turns(1, start=number, letters=200)
        next_question = user(f"Question {number + 1}", pinned=True)
        ledger = trimmed([*log, next_question], 2_600, ledger=ledger, low=low).ledger
    return len(ledger.cuts)


def test_36_with_headroom_there_are_fewer_cuts() -> None:
    assert 0 < cuts(0.6) < cuts(0.8)


def test_37_messages_are_merged_results_deduplicated_and_tags_stripped() -> None:
    log = [
        user("One", pinned=True),
        user("Two <checkpoint_id>4711</checkpoint_id>", pinned=True),
        call("read", {}, id="c1"),
        result("the first result", id="c1", name="read"),
        result("the last result", id="c1", name="read"),
        assistant("Read."),
    ]
    envelope = build(log, counter=RFC, options=MIRROR)
    pairs = sent(envelope)
    assert [role for role, _ in pairs] == ["user", "assistant", "tool", "assistant"]
    assert "4711" not in pairs[0][1]
    assert ("One" in pairs[0][1], "Two" in pairs[0][1]) == (True, True)
    assert pairs[2][1] == "the last result"


def test_37_the_estimate_is_that_of_the_document() -> None:
    text = "x" * 350
    alone = build([user(text)], counter=RFC, options=MIRROR)
    assert alone.tokens == 114  # ceil(1.05 × (350 / 3.5 + 8)), rounded up at the end
    tool = {"name": "t" * 100, "description": "d" * 100, "input_schema": {}}
    with_tool = build([user(text)], head=RequestHead(tools=(tool,)), counter=RFC, options=MIRROR)
    assert with_tool.account.tools == -(-(202 * 1.2) // 3.5) + 8
    assert with_tool.tokens > alone.tokens


@awaited
async def test_38_a_hook_sees_each_request_before_it_is_sent_and_may_change_it() -> None:
    seen: list[int] = []

    async def before(session: Any, request: dict[str, Any]) -> dict[str, Any]:
        seen.append(len(session.log))
        return request | {"user": "ana"}

    client = ScriptedClient(["One.", "Two."])
    helper = Agent(client=client, before=(before,))
    async with open_for(helper, MemoryStore(), "chat", model="gpt-5", settings=NO_SETTINGS) as session:
        await helper.run(session, "1")
        await helper.run(session, "2")
    assert [request["user"] for request in client.requests] == ["ana", "ana"]
    assert len(seen) == 2


def test_38_trimming_stands_before_any_call_of_an_sdk() -> None:
    wire_log: list[dict[str, Any]] = [{"role": "user", "content": "Read them."}]
    ledger = None
    for number in range(20):
        function = {"name": "read", "arguments": json.dumps({"path": f"{number}.py"})}
        wire_log += [
            {"role": "assistant", "content": None,
             "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "line of code\n" * 60},
        ]  # fmt: skip
        request = {"model": "gpt-4o", "messages": wire_log}
        fitted = fit_request(request, budget=Budget(window=4_000, reserve=500), ledger=ledger)
        ledger = json.loads(json.dumps(fitted.ledger.dump()))
        assert fitted.envelope.tokens <= 3_500
    assert fitted.ledger.cuts
    assert fitted.request["messages"][0] == wire_log[0]


def test_38_a_checkpoint_is_read_resumed_and_written_with_its_index() -> None:
    log = [*turns(8), ASK]
    first = trimmed(log, 1_800)
    index = trim_index(first)
    payload = write(log, metadata=with_index({"title": "lamps"}, first), run="run-1")
    plain = json.loads(payload)
    assert plain["metadata"] == {"title": "lamps", INDEX: index}
    assert index > 0
    checkpoint = read(payload, pin_users=True)
    again = build([*checkpoint.log], ledger=checkpoint.ledger, counter=RFC, options=MIRROR)
    assert lowered(again) == lowered(first)
    assert sent(again) == sent(first)
    assert (checkpoint.metadata or {})["title"] == "lamps"


def test_38_an_index_of_another_history_trims_nothing_and_says_so() -> None:
    payload = write([user("Hello"), assistant("a" * 400)], metadata={INDEX: 100})
    checkpoint = read(payload)
    assert checkpoint.ledger == Ledger()
    assert checkpoint.notes
    kept = build(checkpoint.log, ledger=checkpoint.ledger, options=MIRROR)
    assert all(entry.form is Form.FULL for entry in kept.entries)
    assert [entry.role for entry in kept.sent] == [Role.USER, Role.ASSISTANT]
