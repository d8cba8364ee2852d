"""Single decisions of fitting a request at their edges: names in errors, answers of own tools, clearing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lamina import Budget, BudgetExceeded, Envelope, Ledger, Options, Policy, RequestHead, Segment, build
from lamina.core import CHARS4, ToolCall, text_of
from lamina.core.recall import list_refs
from lamina.core.wishes import PINNED_PART
from lamina.dialects import DIALECTS
from lamina.fitting.context_tool import add_gauge, answer_context
from lamina.fitting.names import name_segments
from lamina.fitting.own_tools import CONTEXT_TOOL, RECALL_TOOL, write_tools
from lamina.fitting.recalls import plain_turn
from lamina.segments import assistant, call, note, result, system, user

CONTEXT = "context"
ROOM = Budget(window=4_000, reserve=0)
LONG = "a rule about the folder vendor"


def names_in_error(log: list[Segment], request: dict[str, Any] | None = None) -> str:
    """The words of an error that lists every segment of a log."""
    segments = tuple((ref, 10) for ref, _ in list_refs(log))
    return str(name_segments(BudgetExceeded(floor=100, room=10, segments=segments), log, request))


@pytest.mark.parametrize(
    ("segment", "name"),
    [
        (call("read_file", {}, id="c1"), "call of read_file"),
        (result("text", id="c1", name="read_file"), "tool result of read_file"),
        (result("text", id="c1"), "tool result of a tool"),
        (user("hello"), "user message"),
        (assistant("hello"), "assistant message"),
        (system("hello"), "system text"),
        (note("docs/spec.md", "hello"), "note docs/spec.md"),
    ],
)
def test_an_error_names_what_a_segment_is(segment: Segment, name: str) -> None:
    assert name in names_in_error([segment])


def test_an_error_names_the_place_of_each_message_also_of_equal_ones() -> None:
    words = {"role": "user", "content": "twice"}
    request = {"model": "gpt-5", "messages": [words, {"role": "assistant", "content": "well"}, dict(words)]}
    log = list(DIALECTS["openai_chat"].wire.parse(request).log)
    named = names_in_error(log, request)
    assert [f"messages[{index}] (" in named for index in range(4)] == [True, True, True, False]


def test_an_error_names_a_field_that_is_no_list() -> None:
    request = {"model": "gpt-5", "instructions": "Be brief.", "input": "hello"}
    log = list(DIALECTS["openai_responses"].wire.parse(request).log)
    assert 'input (user message, "hello")' in names_in_error(log, request)


class Dumped:
    """An object of an SDK, as far as a turn of a request needs it."""

    def model_dump(self, **how: object) -> dict[str, Any]:
        assert how == {"mode": "json", "by_alias": True, "exclude_unset": True}
        return {"role": "assistant"}


def test_a_turn_is_stored_as_plain_values_whatever_it_is_made_of() -> None:
    turn = {"role": "user", "content": ({"type": "text", "text": "a"}, Dumped(), 3, None)}
    content = [{"type": "text", "text": "a"}, {"role": "assistant"}, 3, None]
    assert plain_turn(turn) == {"role": "user", "content": content}
    assert plain_turn(Dumped()) == {"role": "assistant"}
    assert plain_turn("text") == "text"
    assert plain_turn((1, 2)) == [1, 2]


def fit(log: list[Segment], budget: Budget | None = ROOM, ledger: Ledger | None = None) -> Envelope:
    return build(log, budget=budget, ledger=ledger, counter=CHARS4, options=Options(context_tool=CONTEXT))


def ask(envelope: Envelope, action: str, what: str = "") -> tuple[list[Segment], str]:
    """The call of the context tool with its result, and the words of the result."""
    asking = call(CONTEXT, {"action": action, "what": what}, id=f"{action}-{len(envelope.entries)}")
    (part,) = asking.parts
    assert isinstance(part, ToolCall)
    answer = answer_context(part, ledger=envelope.ledger, envelope=envelope)
    return [asking, answer], text_of(answer.parts)


def test_the_words_of_the_user_are_released_only_from_a_pin() -> None:
    log = [user(f"Here is {LONG}, which holds."), assistant("I read it.")]
    assert "this is what the user said" in ask(fit(log), "release", LONG)[1]
    pinning, words = ask(fit(log), "pin", LONG)
    assert words.startswith("pinned: ")
    log += pinning
    words = ask(fit(log), "release", LONG)[1]
    assert words.startswith("released: ")
    assert "about 0 tokens" in words


def test_the_words_of_the_model_are_released_without_a_pin() -> None:
    log = [user("Go on."), assistant(f"I know {LONG}, which holds.")]
    words = ask(fit(log), "release", LONG)[1]
    assert words.startswith("released: ")
    assert "about 0 tokens" not in words


@pytest.mark.parametrize(("missing", "begins"), [(0, "pinned: "), (1, "not done: ")])
def test_a_pin_may_take_all_that_pins_may_take_and_not_a_token_more(missing: int, begins: str) -> None:
    log = [user("Go on."), assistant(f"I know {LONG}, which holds. " * 20)]
    tokens = fit(log).entries[1].tokens
    envelope = fit(log, Budget(window=PINNED_PART * tokens - missing, reserve=0))
    assert envelope.cut is None
    assert ask(envelope, "pin", LONG)[1].startswith(begins)


def test_a_note_is_released_by_its_words() -> None:
    log = [user("Go on."), assistant("I will.")]
    noting, words = ask(fit(log), "note", "the tests are red")
    assert words.startswith("noted: ")
    log += noting
    assert ask(fit(log), "release", "the tests are red")[1] == "released: the note"
    assert "nothing here is called" in ask(fit(log), "release", "the tests are green")[1]


def test_the_gauge_stands_only_below_results_and_only_in_a_window() -> None:
    log = [user("words " * 2_000)]
    full = fit(log, Budget(window=3_100, reserve=0, trigger=1.0, target=1.0))
    answer = result("found", id="c1", name="recall")
    assert "% of your window is used" in text_of(add_gauge(answer, full).parts)
    spoken = assistant("found")
    assert add_gauge(spoken, full) is spoken
    assert add_gauge(answer, fit(log, None)) is answer
    assert add_gauge(answer, fit([user("short")])) is answer


def test_tools_are_added_unless_the_client_has_their_name() -> None:
    dialect = DIALECTS["anthropic"]
    head = RequestHead()
    tools = (RECALL_TOOL, CONTEXT_TOOL)
    added, written = write_tools(tools, dialect, head)
    assert added == (RECALL_TOOL, CONTEXT_TOOL)
    assert [definition["name"] for definition in written] == ["recall", "context"]
    taken = msgspec.structs.replace(head, tools=(written[0],))
    added, written = write_tools(tools, dialect, taken)
    assert added == (CONTEXT_TOOL,)
    assert [definition["name"] for definition in written] == ["context"]


def test_tools_are_kept_unless_the_policy_defers_them_and_the_api_can() -> None:
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("read", "rare")]
    request = {"model": "claude-sonnet-5-5", "max_tokens": 500, "tools": tools, "messages": []}
    deferring = Policy(load_tools=("read",))
    keeping = Policy()
    deferred = deferring.defer_tools(request, DIALECTS["anthropic"])
    assert [bool(tool.get("defer_loading")) for tool in deferred["tools"][-2:]] == [False, True]
    assert keeping.defer_tools(request, DIALECTS["anthropic"]) is request
    assert DIALECTS["ollama"].defer_tools is None
    assert deferring.defer_tools(request, DIALECTS["ollama"]) is request
