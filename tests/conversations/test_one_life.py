"""One script of events through both doors: what is sent, the ledger and the record are the same."""

from __future__ import annotations

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
