"""One script of events through both doors: what is sent, the ledger and the record are the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamina import Budget
from lamina.core.tokens import STRICT
from tests.conversations.doors import DOORS, Client, Json, Model, Refusal, describe_kept, play
from tests.gateway.growing import messages_request
from tests.wrapped.scripted_api import Call, Said

EXACT = msgspec.structs.replace(STRICT, exact=True)
"""A counter that has nothing to learn: a client calibrates with every report, a gateway at a cut."""

POLICY: dict[str, Any] = {
    "budget": Budget(window=6_000, reserve=500),
    "counter": EXACT,
    "keep": "all",
    "recall": "tool",
    "breakpoints": "keep",
}

Story = Callable[[Client], Any]


def tell_both(folder: Path, story: Story, make_model: Callable[[], Model], **policy: Any) -> list[Json]:
    """What is stored after a story, which must be the same at both doors, as what was sent must be."""
    outcomes: list[tuple[list[Any], list[Json]]] = []
    for door, through in DOORS.items():
        address = str(folder / f"{door}.db")
        with through(address, make_model(), **POLICY | policy) as client:
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


class Event(NamedTuple):
    """What a client does: it says something, or changes its history at a step and then says something."""

    kind: str
    step: int
    stream: bool


KINDS = ("say", "edit", "rewind", "delete", "refuse", "restart")
EVENTS = st.lists(st.builds(Event, st.sampled_from(KINDS), st.integers(0, 30), st.booleans()), max_size=6)


class Teller:
    """A client that tells one story, through any number of processes."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.steps = messages_request(10)["messages"][1:]
        self.words = count()
        self.events = [*events, Event("say", 0, stream=False)]
        self.refuses = False

    def answer(self, request: Json) -> Said | Refusal:
        """The model: it recalls once for each question, if it can."""
        if self.refuses:
            self.refuses = False
            return Refusal(400, "prompt is too long")
        last = request["messages"][-1]
        handles = re.findall(r'recall=\\?"([a-z0-9-]+)', json.dumps(request["messages"]))
        can_recall = "recall" in [tool.get("name") for tool in request["tools"]]
        if handles and can_recall and "recalled-" not in json.dumps(last):
            return [Call("recall", {"key": handles[-1]}, f"recalled-{len(request['messages'])}")]
        return ["Fine."]

    def tell(self, client: Client) -> bool:
        """Do what follows, until the process ends. Returns whether there is more to tell."""
        while self.events:
            event = self.events.pop(0)
            if event.kind == "restart":
                return True
            self._change(event)
            play(client.send, messages_request(0, stream=event.stream) | {"messages": self._say()})
        return False

    def _change(self, event: Event) -> None:
        at = 2 * (event.step % (len(self.steps) // 2))
        match event.kind:
            case "edit":
                self.steps[at]["content"][0]["text"] = f"Edited {next(self.words)}."
            case "rewind":
                del self.steps[at + 2 :]
            case "delete" if len(self.steps) > 2:
                del self.steps[at : at + 2]
            case "refuse":
                self.refuses = True

    def _say(self) -> list[Json]:
        number = next(self.words)
        call_id = f"more_{number}"
        call = {"type": "tool_use", "id": call_id, "name": "read", "input": {"path": f"{number}.py"}}
        result = {"type": "tool_result", "tool_use_id": call_id, "content": f"def more_{number}()\n" * 90}
        text = {"type": "text", "text": f"More {number}."}
        self.steps.append({"role": "assistant", "content": [text, call]})
        self.steps.append({"role": "user", "content": [result]})
        return [{"role": "user", "content": "Do it."}, *self.steps]


@settings(max_examples=5)
@example(events=[Event("rewind", 0, stream=False), Event("refuse", 0, stream=False)], keep="lowered")
@given(events=EVENTS, keep=st.sampled_from(["all", "lowered"]))
def test_whatever_a_client_does_both_doors_do_the_same(events: list[Event], keep: str) -> None:
    outcomes: list[tuple[list[Any], list[Json]]] = []
    for door, through in DOORS.items():
        with TemporaryDirectory() as folder:
            address = str(Path(folder) / f"{door}.db")
            teller = Teller(events)
            sent: list[Any] = []
            has_more = True
            while has_more:
                with through(address, teller.answer, **POLICY | {"keep": keep}) as client:
                    has_more = teller.tell(client)
                sent += client.api.sent
            outcomes.append((sent, describe_kept(address)))
    (wrap_sent, wrap_kept), (gateway_sent, gateway_kept) = outcomes
    assert wrap_sent == gateway_sent
    # A gateway passes what needs no cut without building it, and has less to store of it.
    if all(call["ledger"].keys() & {"lines", "folds"} for kept in wrap_kept for call in kept["calls"]):
        assert wrap_kept == gateway_kept
