"""A memo changes no byte, whatever a client does to the messages that it sent before.

It may change one in place, so that the same object says something else; take some back; go on from an earlier
point; or send equal copies.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from lamina import LaminaError, Policy, fit_request
from lamina.dialects import DIALECTS
from lamina.fitting import RequestMemo
from tests.dialects.wires import WIRES, Call, Result, Wire

Message = dict[str, Any]
Step = list[Message]


@pytest.fixture(autouse=True, scope="module")
def _few_messages_settle() -> Iterator[None]:
    """Otherwise only the longest conversations would have messages that are remembered as settled."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("core.hashing", "core.repair", "dialects.memos"):
            patch.setattr(f"lamina.{module}.SETTLED_AT", 3)
        yield


TEXT = "Look at src/parser.py and at lib/lines.ts, and never use tabs. " * 6


HEADS: dict[str, dict[str, Any]] = {
    "anthropic": {"model": "claude-sonnet-4-5", "max_tokens": 100},
    "openai_responses": {"model": "gpt-5", "store": False},
    "ollama": {"model": "llama3", "options": {"num_ctx": 8_000}},
}
"""What a request has besides its turns, where that matters here."""


def make_step(wire: Wire, number: int, flag: Any) -> Step:
    """A call with a flag, its result, and for Responses the reasoning before it."""
    id_ = "" if wire.name in ("gemini", "ollama") else f"t{number}"
    turns = wire.call([Call(id_, "read", {"deep": flag, "path": "a.py"})])
    if wire.field == "input":
        reasoning = {"type": "reasoning", "id": f"rs_{number}", "summary": []}
        turns.insert(0, {**reasoning, "encrypted_content": f"g{number}"})
    if wire.name in ("openai_chat", "openai_responses"):
        turns[-1]["seen"] = flag
    return [*turns, *wire.answer([Result(id_, "read", TEXT)])]


def change_in_place(message: Message, chance: Random) -> None:
    """Change a flag to the number that Python takes for the same, or the order of keys, or a text."""
    leaves = list(_find_leaves(message))
    holder = chance.choice([message, *(holder for holder, _, _ in leaves)])
    if chance.random() < 0.4 and isinstance(holder, dict):
        fields = list(holder.items())[::-1]
        holder.clear()
        holder.update(fields)
        return
    for holder, name, value in leaves:
        if isinstance(value, bool | int):
            holder[name] = int(value) if isinstance(value, bool) else bool(value)
            return
        if value == TEXT and chance.random() < 0.5:
            holder[name] = f"{TEXT} Changed."
            return


def _find_leaves(holder: Any) -> Any:
    items = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
    for name, value in items:
        if isinstance(value, dict | list):
            yield from _find_leaves(value)
        else:
            yield holder, name, value


def fit(request: dict[str, Any], **arguments: Any) -> tuple[str, Any]:
    try:
        fitted = fit_request(request, **arguments)
    except LaminaError as error:
        return repr(error), arguments["ledger"]
    sent = json.dumps([fitted.request, fitted.ledger.dump(), fitted.envelope.tokens], default=repr)
    return sent, fitted.ledger


def tell_story(
    dialect: str, seed: int, *, turns: int = 12, in_place: bool = True
) -> Iterator[dict[str, Any]]:
    """The requests of a client that goes on, changes what it sent, takes it back, or goes on from before.

    If it changes nothing in place, it has a changed copy in the place of a message.
    """
    wire = WIRES[dialect]
    question = wire.ask("Go on.")
    chance = Random(seed)  # noqa: S311 - a story to repeat
    messages: list[Message] = [copy.deepcopy(question)]
    earlier = [list(messages)]
    for turn in range(turns):
        match chance.choice(("grow", "grow", "change", "take back", "go back", "copy")):
            case "change":
                place = chance.randrange(len(messages))
                if not in_place:
                    messages[place] = copy.deepcopy(messages[place])
                change_in_place(messages[place], chance)
            case "take back":
                del messages[chance.randrange(1, len(messages) + 1) :]
            case "go back":
                messages = list(chance.choice(earlier))
            case "copy":
                messages = copy.deepcopy(messages)
        messages += make_step(wire, turn, chance.choice([True, 1, False, 0]))
        messages += make_step(wire, turn + 100, "no")
        messages.append(copy.deepcopy(question))
        earlier.append(list(messages))
        yield {**wire.head, **HEADS.get(dialect, {}), wire.field: list(messages)}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("window", [900_000, 6_000])
@pytest.mark.parametrize("dialect", WIRES)
def test_a_memo_changes_nothing_whatever_a_client_changes(dialect: str, window: int, *, frozen: bool) -> None:
    for seed in range(2):
        memo = RequestMemo(frozen=frozen)
        ledger = None
        for request in tell_story(dialect, seed, in_place=not frozen):
            with_memo, next_ledger = fit(request, ledger=ledger, budget=window, memo=memo)
            without_memo, _ = fit(request, ledger=ledger, budget=window)
            assert with_memo == without_memo
            ledger = next_ledger


def _put_words_before_a_result(message: Message) -> None:
    message["content"].insert(0, {"type": "text", "text": "Here:"})  # the API wants results first


def _mark(message: Message) -> None:
    message["content"][0]["cache_control"] = {"type": "ephemeral"}


@pytest.mark.parametrize(
    ("change", "policy"),
    [
        # What is valid leaves as it came, so that nothing but the check finds what is not.
        (_put_words_before_a_result, Policy(breakpoints="keep")),
        # Where the client marks something, lamina plans no markers.
        (_mark, Policy()),
    ],
)
def test_what_a_client_breaks_or_marks_in_place_is_seen_whatever_a_memo_has_read(
    change: Callable[[Message], None], policy: Policy
) -> None:
    messages: list[Message] = []
    for turn in range(6):
        messages += [{"role": "user", "content": "Go on."}, *make_step(WIRES["anthropic"], turn, "no")]
    memo = RequestMemo()
    first = fit_request({**HEADS["anthropic"], "messages": [*messages]}, memo=memo, policy=policy)
    change(messages[2])
    changed = {**HEADS["anthropic"], "messages": [*messages]}
    fitted = fit_request(changed, memo=memo, ledger=first.ledger, policy=policy)
    assert DIALECTS["anthropic"].wire.check(fitted.request) == []
    assert fitted.request == fit_request(changed, ledger=first.ledger, policy=policy).request
