"""One script of events through both doors: what is sent, the ledger and the record are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamina import Budget
from lamina.core.tokens import STRICT
from tests.conversations.doors import DOORS, Client, Json, Model, Refusal, describe_kept, play
from tests.gateway.growing import messages_request
from tests.wrapped.scripted_api import Said

EXACT = msgspec.structs.replace(STRICT, exact=True)
"""A counter that has nothing to learn: a client calibrates with every report, a gateway at a cut."""

Story = Callable[[Client], Any]


def tell_both(folder: Path, story: Story, make_model: Callable[[], Model], **policy: Any) -> list[Json]:
    """What is stored after a story, which must be the same at both doors, as what was sent must be."""
    fields: dict[str, Any] = {
        "budget": Budget(window=6_000, reserve=500),
        "counter": EXACT,
        "keep": "all",
        "recall": "tool",
        "breakpoints": "keep",
    }
    outcomes: list[tuple[list[Any], list[Json]]] = []
    for door, through in DOORS.items():
        address = str(folder / f"{door}.db")
        with through(address, make_model(), **fields | policy) as client:
            story(client)
        outcomes.append((client.api.sent, describe_kept(address)))
    (wrap_sent, wrap_kept), (gateway_sent, gateway_kept) = outcomes
    assert wrap_sent == gateway_sent
    assert wrap_kept == gateway_kept
    return wrap_kept


def answer_always() -> Model:
    return lambda _: ["Fine."]


def fail_each_third(refusal: Refusal) -> Model:
    numbers = count()
    return lambda _: refusal if next(numbers) % 3 == 1 else ["Fine."]


def grow(client: Client, *, steps: int = 10, read: int | None = None, **fields: Any) -> None:
    """Send a request after each step. The client reads `read` events of each third answer."""
    for number in range(steps):
        play(client.send, messages_request(number, **fields), read=read if number % 3 == 1 else None)


@pytest.mark.parametrize("keep", ["all", "lowered"])
def test_a_stream_is_recorded_with_what_it_took(tmp_path: Path, keep: str) -> None:
    """Anthropic reports that when it begins and before it ends: its last event says nothing."""
    [kept] = tell_both(tmp_path, lambda client: grow(client, stream=True), answer_always, keep=keep)
    assert kept["requests"] == 10
    assert all(call["answered"][3].input == 100 for call in kept["calls"])


def test_a_stream_that_breaks_off_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    [kept] = tell_both(
        tmp_path, lambda client: grow(client, stream=True), lambda: fail_each_third(Refusal(0))
    )
    broken = [call["answered"] for call in kept["calls"][1::3]]
    assert [(status, has_error) for status, has_error, *_ in broken] == [(200, True)] * 3
    assert all(call["answered"][3].input == 100 for call in kept["calls"])


def limited_to(limit: int, *, names_limit: bool) -> Model:
    """A model with a window of so many tokens, two bytes each."""

    def answer(request: Json) -> Said | Refusal:
        tokens = len(json.dumps(request)) // 2
        if tokens <= limit:
            return ["Fine."]
        text = f"prompt is too long: {tokens} tokens > {limit} maximum"
        return Refusal(400, text if names_limit else "prompt is too long")

    return answer


@pytest.mark.parametrize("window", [20_000, 6_000])
@pytest.mark.parametrize("names_limit", [True, False])
@pytest.mark.parametrize("keep", ["all", "lowered"])
def test_what_was_refused_as_too_long_is_cut_from_what_a_model_has_seen(
    tmp_path: Path, window: int, keep: str, *, names_limit: bool
) -> None:
    """With the smaller window the refused request was cut itself. No model has seen that cut."""
    [kept] = tell_both(
        tmp_path,
        grow,
        lambda: limited_to(2_500, names_limit=names_limit),
        budget=Budget(window=window, reserve=500),
        keep=keep,
    )
    assert [call["why"] for call in kept["calls"]].count("refused as too long") == 1
    assert [call["answered"][:2] for call in kept["calls"]].count((400, False)) == 1
    assert kept["requests"] == 10
    assert bool(kept["lowered"]) == (keep == "lowered")


def test_both_doors_mend_what_is_refused_for_several_reasons(tmp_path: Path) -> None:
    """An upstream that refuses thinking, then the switch that it was asked for, then the length."""

    def make_model() -> Model:
        refusals = iter(REFUSALS)

        def answer(request: Json) -> Said | Refusal:
            text = next(refusals, "") if len(request["messages"]) > 7 else ""
            return Refusal(400, text) if text else ["Fine."]

        return answer

    [kept] = tell_both(
        tmp_path,
        lambda client: grow(client, model="claude-opus-5-5"),
        make_model,
        budget=Budget(window=30_000, reserve=500),
    )
    whys = [call["why"] for call in kept["calls"] if call["why"]]
    assert whys == [
        "refused for its thinking",
        "refused for what it asks of the server",
        "refused as too long",
    ]


REFUSALS = ("bound to a different conversation", "block_binding: not permitted", "prompt is too long")


def test_a_call_that_fails_is_in_the_record(tmp_path: Path) -> None:
    """Also the first of a conversation, which goes on if its client tries again, and the last one."""

    def fail_first_and_last() -> Model:
        numbers = count()
        return lambda _: Refusal(500, "overloaded") if next(numbers) in (0, 4) else ["Fine."]

    def insist(client: Client) -> None:
        for steps in (0, 0, 1, 2, 3):
            play(client.send, messages_request(steps))

    for door, through in DOORS.items():
        address = str(tmp_path / f"{door}.db")
        with through(address, fail_first_and_last(), keep="all") as client:
            insist(client)
        [kept] = describe_kept(address)
        assert [call["answered"][0] for call in kept["calls"]] == [500, 200, 200, 200, 500], door


def test_an_answer_that_its_client_leaves_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    """What of it had come when the client went away is chance, so doors are not compared."""
    for door, through in DOORS.items():
        address = str(tmp_path / f"{door}.db")
        with through(
            address, answer_always(), budget=Budget(window=6_000, reserve=500), keep="all"
        ) as client:
            grow(client, stream=True, read=2)
        [kept] = describe_kept(address)
        assert [call["answered"] is None for call in kept["calls"]] == [False] * 10, door
