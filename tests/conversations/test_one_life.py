"""One script of events through all doors: what is sent, the ledger and the record are the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamina import Budget, Policy, translate
from lamina.core.tokens import STRICT
from lamina.fitting.recalls import read_turns
from tests.conversations.doors import (
    DOORS,
    MESSAGES,
    RESPONSES,
    SPEECHES,
    Client,
    Json,
    Model,
    Refusal,
    Speech,
    describe_kept,
    play,
)
from tests.gateway.growing import messages_request
from tests.wrapped import scripted_api
from tests.wrapped.scripted_api import Call, Said, message_block

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


def tell_all(folder: Path, story: Story, make_model: Callable[[], Model], **policy: Any) -> list[Json]:
    """What is stored after a story, which must be the same at all doors, as what was sent must be."""
    outcomes: list[tuple[list[Any], list[Json]]] = []
    for door, through in DOORS.items():
        address = str(folder / f"{door}.db")
        with through(address, make_model(), **POLICY | policy) as client:
            story(client)
        outcomes.append((client.api.sent, describe_kept(address)))
    first = outcomes[0]
    for outcome in outcomes[1:]:
        assert outcome == first
    return first[1]


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
    [kept] = tell_all(tmp_path, lambda client: grow(client, stream=True), answer_always, keep=keep)
    assert kept["requests"] == 10
    assert all(call["answered"][3].input == 100 for call in kept["calls"])


def test_a_stream_that_breaks_off_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    [kept] = tell_all(tmp_path, lambda client: grow(client, stream=True), lambda: fail_each_third(Refusal(0)))
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
    [kept] = tell_all(
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

    [kept] = tell_all(
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


CHANGES = ("edit", "rewind", "delete", "forget", "ask", "again", "other", "system", "tools", "continue")
"""What a client does to its request before it says something."""

ANSWERS = ("say", "parallel", "beside", "aloud", "insist", "refuse", "break", "fail", "restart")
"""How the model and the API answer: a model that insists recalls for ever, also without the tool."""

KINDS = (*CHANGES, *ANSWERS)
EVENTS = st.lists(st.builds(Event, st.sampled_from(KINDS), st.integers(0, 30), st.booleans()), max_size=6)
POLICIES: tuple[Json, ...] = (
    {"keep": "all", "budget": Budget(window=9_000, reserve=500)},
    {"keep": "lowered"},
    {"keep": "lowered", "budget": Budget(window=3_000, reserve=300)},
    {"keep": "all", "window": "price"},
)
READ = messages_request(0)["tools"][0]
LIST = READ | {"name": "list", "description": "Lists a folder."}


class Teller:
    """A client that tells one story in one API, through any number of processes."""

    def __init__(self, events: Sequence[Event], speech: Speech = MESSAGES) -> None:
        self.speech = speech
        self.task = "Do it."
        self.steps = messages_request(10)["messages"][1:]
        for number, step in enumerate(self.steps[::2]):  # for reminders
            step["content"][0]["text"] = f"The code of lighthouse{number} is {7919 * number}."
        self.other = ("Do it too.", deepcopy(self.steps))
        self.head: Json = {}
        self.words = count()
        self.events = [*events, Event("say", 0, stream=False)]
        self.now = self.events[0]
        self.reply: Said = []
        self.thought: Said = []
        self.request: Json = {}
        self.seen: list[Any] = []
        self.requests = count()
        self.handle = ""

    def answer(self, request: Json) -> Said | Refusal:
        """The model: it recalls once for each question, if it can."""
        number = next(self.requests)
        kind = self.now.kind
        if kind in FAILURES and number == self.now.step % 4:
            return FAILURES[kind]
        handles = re.findall(r'recall=\\*"([a-z0-9-]+)', json.dumps(read_turns(request)))
        can_recall = handles and '"name": "recall"' in json.dumps(request["tools"])
        if self.handle:
            can_recall = kind == "insist"
        if not can_recall:
            return self.reply
        self.handle = self.handle or handles[-1]
        recall = Call("recall", {"key": self.handle}, f"recalled-{len(self.seen)}-{number}")
        return [*(self.reply if kind == "beside" else self.thought), recall]

    def tell(self, client: Client) -> bool:
        """Do what follows, until the process ends. Returns whether there is more to tell."""
        while self.events:
            self.now = event = self.events.pop(0)
            if event.kind == "restart":
                return True
            self._change(event)
            self.thought = ["Let me see."] if event.kind == "aloud" else []
            self.seen.append(play(client.send, self.request))
            if self.seen[-1] is None:  # its client tries again, as SDKs do
                self.seen.append(play(client.send, self.request))
            if event.stream and self.handle and self.thought:
                self.steps[-2]["content"].insert(0, message_block("Let me see."))
        return False

    def _change(self, event: Event) -> None:
        self.requests = count()
        self.handle = ""
        at = 2 * (event.step % (len(self.steps) // 2))
        match event.kind:
            case "edit":
                self.steps[at]["content"][0]["text"] = f"Edited {next(self.words)}."
            case "rewind":
                del self.steps[at + 2 :]
            case "delete" if len(self.steps) > 2:
                del self.steps[at : at + 2]
            case "forget":
                del self.steps[:at]
            case "other":
                self.other, (self.task, self.steps) = (self.task, self.steps), self.other
            case "system":
                self.head["system"] = f"Be brief, {next(self.words)}."
            case "tools":
                self.head["tools"] = [LIST, READ] if event.step % 2 else [READ, LIST]
        if event.kind != "again" or not self.request:
            messages = [{"role": "user", "content": self.task}, *self._grow(event)]
            request = messages_request(0, stream=event.stream) | self.head | {"messages": messages}
            self.request = self._translate(request)
            if event.kind == "continue" and self.speech is RESPONSES and self.seen:
                self._continue()

    def _grow(self, event: Event) -> list[Json]:
        """The history, after which the model is asked. Then it has the answer, and its results."""
        if event.kind == "ask":
            self.steps.append({"role": "assistant", "content": [{"type": "text", "text": "Done."}]})
            question = f"Where is lighthouse{event.step % 10}? Never forget word-{next(self.words)}."
            self.steps.append({"role": "user", "content": [{"type": "text", "text": question}]})
        history = [*self.steps]
        number = next(self.words)
        ids = [f"more_{number}", f"also_{number}"] if event.kind == "parallel" else [f"more_{number}"]
        self.reply = [
            f"More {number}.",
            *(Call("read", {"path": f"{call_id}.py"}, call_id) for call_id in ids),
        ]
        self.steps.append({"role": "assistant", "content": [message_block(said) for said in self.reply]})
        output = f"def more_{number}()\n" * 90
        results = [{"type": "tool_result", "tool_use_id": call_id, "content": output} for call_id in ids]
        self.steps.append({"role": "user", "content": results})
        return history

    def _translate(self, request: Json) -> Json:
        if self.speech is MESSAGES:
            return deepcopy(request)
        policy = Policy(budget=1_000_000, breakpoints="keep")
        fitted = translate(request, to=self.speech.dialect, model=self.speech.model, policy=policy)
        return {**fitted.request, "stream": request["stream"]}

    def _continue(self) -> None:
        """Send only what follows the last answer, which the server has."""
        answer = self.seen[-1]
        if isinstance(answer, list):
            answer = answer[-1]["response"]
        if answer is not None:
            self.request["previous_response_id"] = answer["id"]
            items = self.request["input"]
            calls = [place for place, item in enumerate(items) if item["type"] == "function_call"]
            del items[: calls[-1] + 1]


FAILURES = {
    "refuse": Refusal(400, "prompt is too long"),
    "break": Refusal(0),
    "fail": Refusal(500, "overloaded"),
    "insist": Refusal(400, "prompt is too long"),
}
"""How the API fails once."""


class Life(NamedTuple):
    """What became of a story: what was sent, what the client saw, and what is stored."""

    sent: list[Any]
    seen: list[Any]
    kept: list[Json]


def live(door: str, events: Sequence[Event], speech: Speech, **policy: Any) -> Life:
    """Tell a story through a door, with a new process after each restart."""
    scripted_api.NUMBERS = count(1)
    sent: list[Any] = []
    teller = Teller(events, speech)
    with TemporaryDirectory() as folder:
        address = str(Path(folder) / "kept.db")
        has_more = True
        while has_more:
            with DOORS[door](address, teller.answer, speech=speech, **POLICY | policy) as client:
                has_more = teller.tell(client)
            sent += client.api.sent
        return Life(sent, teller.seen, describe_kept(address))


@settings(max_examples=5)
@example(
    events=[Event("rewind", 0, stream=False), Event("refuse", 0, stream=False)],
    speech=MESSAGES,
    policy=POLICIES[1],
)
@example(
    # The second is refused after its recall, and what is sent then has no room for the tool.
    events=[Event("refuse", 0, stream=False), Event("insist", 1, stream=True)],
    speech=MESSAGES,
    policy=POLICIES[2],
)
@example(
    # The second has the recalled text, too, which has no room beside its own.
    events=[Event("beside", 3, stream=False), Event("continue", 1, stream=False)],
    speech=RESPONSES,
    policy=POLICIES[1],
)
@example(
    # The second round is refused when the client has the beginning of a stream that cannot say so.
    events=[Event("fail", 13, stream=True)],
    speech=SPEECHES[-1],
    policy=POLICIES[0],
)
@given(events=EVENTS, speech=st.sampled_from(SPEECHES), policy=st.sampled_from(POLICIES))
def test_whatever_a_client_does_all_doors_do_the_same(
    events: list[Event], speech: Speech, policy: Json
) -> None:
    wrap, gateway, transport = (live(door, events, speech, **policy) for door in DOORS)
    for door in (wrap, transport):
        assert door.sent == gateway.sent
        assert door.seen == gateway.seen
        assert door.kept == gateway.kept
    assert "recalled-" not in json.dumps(wrap.seen)
