"""Faults that cost a cache, planted in a conversation: what a wrapped client reports of each, and its price.

The API is a fake one with the simulated cache of its provider. It reports what it read and, if the provider
does so, what it wrote. A second cache gets the same conversation without the fault, so the true price of the
fault is the difference of two bills.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import lamina
from lamina import Budget, Policy
from lamina.caches import CacheRules, Stream, Tally, cost, rules_for, simulator
from lamina.conversations.lost_caches import NOT_CACHED
from lamina.core.tokens import BYTES4
from lamina.dialects import DIALECTS
from lamina.fitting import Lifetimes
from lamina.models import model as facts_of
from lamina.relay import calls
from lamina.wrapped import MissEvent
from tests.plain_client import plain_client

SYSTEM = "Answer from the notes, and name the note that you took each fact from. " * 90
TURNS = 6
STEP = 20.0
Request = dict[str, Any]


class Api(NamedTuple):
    """An API with the model that is asked."""

    dialect: str
    model: str

    @property
    def rules(self) -> CacheRules:
        return rules_for(self.model, dialect=self.dialect)

    def write(self, system: str, history: list[Request]) -> Request:
        if self.dialect == "anthropic":
            return {"model": self.model, "max_tokens": 500, "system": system, "messages": history}
        return {"model": self.model, "messages": [{"role": "system", "content": system}, *history]}

    def weigh(self, request: Request) -> Stream:
        stream = DIALECTS[self.dialect].cache.stream(request)
        return stream.weighed(max(len(block.data) // 4, 1) for block in stream.blocks)

    def bill(self, tally: Tally) -> float:
        return cost(tally, facts_of(self.model), rules=self.rules, output=0).total


MESSAGES = Api("anthropic", "claude-sonnet-5")
CHAT = Api("openai_chat", "gpt-5")
OLDER_CHAT = Api("openai_chat", "gpt-4o")


class FakeApi:
    """A client whose answers report what the simulated cache of the provider read and wrote."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._cache = simulator(api.rules, model=api.model)
        self.sent: list[Request] = []
        self.tallies: list[Tally] = []

    def answer(self, request: Request) -> Request:
        self.sent.append(request)
        tally = self._cache.send(self._api.weigh(request), at=self._clock.now)
        self.tallies.append(tally)
        if self._api.dialect == "anthropic":
            usage: Request = {
                "input_tokens": tally.uncached,
                "cache_read_input_tokens": tally.read,
                "cache_creation_input_tokens": tally.written + tally.written_long,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": tally.written,
                    "ephemeral_1h_input_tokens": tally.written_long,
                },
                "output_tokens": 1,
            }
        else:
            details = {"cached_tokens": tally.read}
            usage = {"prompt_tokens": tally.total, "prompt_tokens_details": details}
        return {"usage": usage}


class Clock:
    """Seconds that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Played(NamedTuple):
    """What a conversation with a fault was reported to cost, and the bills of each of its calls."""

    events: list[MissEvent]
    bills: list[float]
    sent: list[Request]


Fault = Callable[[int, str, list[Request]], tuple[str, list[Request]]]
"""What stands in the request of this turn, instead of this system text and this history."""


def no_fault(_: int, system: str, history: list[Request]) -> tuple[str, list[Request]]:
    return system, history


def time_in_system(turn: int, system: str, history: list[Request]) -> tuple[str, list[Request]]:
    return f"The time is 2026-05-04T10:{turn:02}:31Z.\n{system}", history


def time_in_first_message(turn: int, system: str, history: list[Request]) -> tuple[str, list[Request]]:
    first = f"The time is 2026-05-04T10:{turn:02}:31Z.\n{history[0]['content']}"
    return system, [{"role": "user", "content": first}, *history[1:]]


def edit(turn: int, system: str, history: list[Request]) -> tuple[str, list[Request]]:
    if turn < TURNS - 1:
        return system, history
    edited = {"role": "assistant", "content": "This answer was written anew. " + history[1]["content"]}
    return system, [history[0], edited, *history[2:]]


def sliding_window(turn: int, system: str, history: list[Request]) -> tuple[str, list[Request]]:
    return system, history[max(2 * turn - 4, 0) :]


def play(
    api: Api,
    fault: Fault,
    monkeypatch: pytest.MonkeyPatch,
    *,
    pause: float = STEP,
    breakpoints: Any = "auto",
    name: str = "",
) -> Played:
    """Play a conversation whose last turn comes after a pause."""
    clock = Clock()
    monkeypatch.setattr(calls, "monotonic", clock)
    bare = FakeApi(api, clock)
    events: list[MissEvent] = []
    resource = "messages" if api.dialect == "anthropic" else "chat.completions"
    client: Any = lamina.wrap(
        plain_client(bare.answer, resource),
        budget=Budget(window=200_000),
        policy=Policy(counter=BYTES4, breakpoints=breakpoints),
        on_miss=events.append,
    )
    if name:
        client = client.conversation(name)
    create = client.messages.create if api.dialect == "anthropic" else client.chat.completions.create
    history: list[Request] = []
    for turn in range(TURNS):
        clock.now += STEP if turn < TURNS - 1 else pause
        history.append(
            {"role": "user", "content": f"What does note {turn} say? " + "Read it to its end. " * 40}
        )
        system, messages = fault(turn, SYSTEM, history)
        create(**api.write(system, messages))
        history.append({"role": "assistant", "content": f"Note {turn} says so. " * 60})
    return Played(events, [api.bill(tally) for tally in bare.tallies], bare.sent)


@pytest.mark.parametrize("name", ["", "named"])
@pytest.mark.parametrize("api", [MESSAGES, CHAT, OLDER_CHAT], ids=lambda api: api.model)
@pytest.mark.parametrize(
    ("fault", "cause"),
    [(time_in_system, "volatile text"), (time_in_first_message, "volatile text"), (edit, "edited")],
)
def test_a_planted_fault_is_named_and_priced(
    api: Api, fault: Fault, cause: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play(api, fault, monkeypatch, name=name)
    faultless = play(api, no_fault, monkeypatch, name=name)
    assert faultless.events == []
    event = played.events[-1]
    assert event.cause == cause
    assert event.remedy in str(event)
    true_price = played.bills[-1] - faultless.bills[-1]
    assert event.price == pytest.approx(true_price, rel=0.05)
    if fault is edit:
        assert len(played.events) == 1
    else:  # the first answer shows nothing yet, and one message is not enough to know a conversation by
        assert len(played.events) >= TURNS - 2


@pytest.mark.parametrize("api", [MESSAGES, CHAT], ids=lambda api: api.model)
def test_a_window_that_slides_over_the_history_is_named(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    played = play(api, sliding_window, monkeypatch)
    event = played.events[-1]
    assert event.cause == "truncated"
    assert "lamina.wrap" in event.remedy
    before = api.weigh(played.sent[-2])
    after = api.weigh(played.sent[-1])
    earlier = {(block.role, block.data) for block in before.blocks}
    sent_again = sum(block.tokens for block in after.blocks if (block.role, block.data) in earlier)
    # Amounts cannot tell what is sent again from what is new: all of the later request could have been read.
    assert sent_again - event.cached < event.lost <= after.tokens - event.cached


@pytest.mark.parametrize(
    ("api", "pause", "breakpoints"),
    [
        (MESSAGES, 400.0, "auto"),
        (MESSAGES, 4_000.0, Lifetimes(stable="1h", tail="1h")),
        (CHAT, 90_000.0, "auto"),
    ],
    ids=str,
)
def test_a_cache_that_expired_is_not_blamed_on_the_provider(
    api: Api, pause: float, breakpoints: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play(api, no_fault, monkeypatch, pause=pause, breakpoints=breakpoints)
    faultless = play(api, no_fault, monkeypatch, breakpoints=breakpoints)
    (event,) = played.events
    assert event.cause == "expired"
    assert event.price == pytest.approx(played.bills[-1] - faultless.bills[-1], rel=0.05)
    assert "1h" in event.remedy


def test_an_api_that_caches_nothing_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests have markers, and their answers report neither a read nor a write."""
    monkeypatch.setattr(FakeApi, "answer", lambda *_: {"usage": {"input_tokens": 9_000}})
    (event,) = play(MESSAGES, no_fault, monkeypatch).events
    assert event.cause == NOT_CACHED
    assert "neither a read nor a write" in str(event)


def test_requests_without_a_marker_are_reported_with_the_setting_that_marks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unmarked = play(MESSAGES, no_fault, monkeypatch, breakpoints="keep")
    assert {event.cause for event in unmarked.events} == {"no breakpoint"}
    assert (
        unmarked.events[-1].remedy == 'client = lamina.wrap(client, policy=lamina.Policy(breakpoints="auto"))'
    )
    assert all("cache_control" in str(request) for request in play(MESSAGES, no_fault, monkeypatch).sent)
