"""Errors that a person can act on: they name the place and say what to do."""

from __future__ import annotations

from typing import Any

import pytest

import lamina
from lamina import BadInput, Budget, BudgetExceeded, Ledger, Policy, fit_request, translate, wrap
from lamina.blocking import Session as BlockingSession
from lamina.core.tokens import BYTES4
from lamina.sessions import Session
from lamina.settings import Settings
from lamina.stores import MemoryStore
from lamina.wrapped import conversation
from tests.sessions.talking import awaited
from tests.wrapped.test_wrap_events import reporting

REQUEST: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
SMALL = Budget(window=600, reserve=0)


def chat_with_result(text: str) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "You read code."},
        {"role": "user", "content": "What does f do?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]
    return {"model": "gpt-4o", "messages": messages}


def test_a_request_that_cannot_fit_names_the_message_its_tool_and_its_first_words() -> None:
    request = chat_with_result("def f(x): return 1\n" * 400)
    question = "def g(y): return 2 " * 400
    request["messages"].append({"role": "user", "content": question})
    with pytest.raises(
        BudgetExceeded, match=r'messages\[4\] \(user message, "def g\(y\): return 2'
    ) as raised:
        fit_request(request, budget=SMALL, policy=Policy(counter=BYTES4))
    assert "~" not in str(raised.value)
    assert raised.value.segments[0][0] in raised.value.names


def test_a_pinned_system_text_is_named_too() -> None:
    request = {
        "model": "claude-opus-5-5",
        "max_tokens": 9,
        "system": "Rules. " * 900,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    with pytest.raises(BudgetExceeded, match=r'system \(system text, "Rules\. Rules\.'):
        fit_request(request, budget=SMALL, policy=Policy(counter=BYTES4))


def test_tools_that_are_too_large_are_named_in_words() -> None:
    schema = {"type": "object", "description": "x " * 3_000}
    tool = {"type": "function", "function": {"name": "read_file", "parameters": schema}}
    with pytest.raises(BudgetExceeded, match="the definitions of the tools: "):
        fit_request({**REQUEST, "tools": [tool]}, budget=SMALL, policy=Policy(counter=BYTES4))


def test_a_wrapped_client_names_the_message_before_anything_is_sent() -> None:
    client = wrap(reporting(), budget=SMALL, policy=Policy(counter=BYTES4))
    with pytest.raises(BudgetExceeded, match=r"messages\[0\] \(user message"):
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "word " * 900}])


@awaited
async def test_a_session_names_what_was_said() -> None:
    async with Session.open(
        MemoryStore(), "a", model="gpt-4o", policy=Policy(budget=SMALL), settings=Settings()
    ) as session:
        with pytest.raises(BudgetExceeded, match=r'user message, "Explain this word word'):
            await session.ask("Explain this " + "word " * 900)


@pytest.mark.parametrize("open_door", [fit_request, wrap], ids=["fit_request", "wrap"])
def test_a_budget_that_is_neither_a_budget_nor_a_window_is_refused(open_door: Any) -> None:
    subject: Any = REQUEST if open_door is fit_request else reporting()
    with pytest.raises(BadInput, match=r"budget is '4k'; give Budget\(.*or the window in tokens"):
        open_door(subject, budget="4k")


@awaited
async def test_a_session_refuses_what_is_no_policy_before_it_opens_anything() -> None:
    opening = Session.open("nowhere/chats.db", "a", policy=Budget(window=4000))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"Session\.open: policy is Budget\(.*or lamina\.Policy"):
        await opening.__aenter__()


@pytest.mark.parametrize("field", ["window", "reserve", "trigger", "keep_last"])
def test_a_budget_takes_only_numbers(field: str) -> None:
    with pytest.raises(BadInput, match=f"{field} is '4k'; give a number"):
        Budget(**({"window": 4000} | {field: "4k"}))  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["window", "trigger"])
def test_a_limit_that_nothing_is_derived_for_cannot_be_left_open(field: str) -> None:
    with pytest.raises(BadInput, match=f"{field} is None; give a number"):
        Budget(**({"window": 4000} | {field: None}))  # type: ignore[arg-type]


def test_a_window_alone_needs_no_name() -> None:
    assert Budget(16_000) == Budget(window=16_000)
    assert Budget(16_000, reserve=1_000).reserve == 1_000


@pytest.mark.parametrize(
    ("ledger", "hint"),
    [
        ('{"version": 1}', r"str is not a ledger; read the text first: ledger=json\.loads"),
        ([1], "list is not a ledger; give the ledger that the last call returned"),
        (fit_request(REQUEST), r"Fitted is not a ledger; give its ledger: ledger=fitted\.ledger"),
    ],
    ids=["text", "list", "fitted"],
)
def test_what_is_no_ledger_is_refused_with_the_right_words(ledger: Any, hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        fit_request(REQUEST, ledger=ledger)
    with pytest.raises(BadInput, match=hint):
        conversation(wrap(reporting()), "a", ledger=ledger)


def test_another_dialect_needs_a_model() -> None:
    request = {"messages": [{"role": "user", "content": "Hi"}]}
    with pytest.raises(BadInput, match=r'no model for anthropic; give model="\.\.\."'):
        translate(request, dialect="openai_chat", to="anthropic", budget=Budget(window=4_000))


def test_a_conversation_needs_a_name_and_a_wrapped_client() -> None:
    with pytest.raises(BadInput, match="the name is 42; give a text"):
        conversation(wrap(reporting()), 42)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"SimpleNamespace is not a wrapped client; pass what lamina\.wrap"):
        conversation(reporting(), "a")
    assert lamina.wrapped.last_fitted(wrap(reporting())) is None


@awaited
async def test_a_session_that_was_closed_says_so() -> None:
    async with Session.open(MemoryStore(), "a", model="gpt-5", settings=Settings()) as session:
        await session.ask("Hi")
        fork = await session.fork(name="b")
    for closed in (session, fork):
        with pytest.raises(BadInput, match=r"session '[ab]': the session is closed; open the conversation"):
            await closed.ask("And?")


def test_the_blocking_session_says_the_same() -> None:
    with BlockingSession.open(MemoryStore(), "a", model="gpt-5", settings=Settings()) as session:
        session.ask("Hi")
    with pytest.raises(BadInput, match="the session is closed"):
        session.ask("And?")
    assert session.ledger != Ledger()
