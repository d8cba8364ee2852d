"""Law 14 at the doors: users who look alike share nothing, whichever door they use.

Every user begins with the same long history and gets the same answers. The model looks for every secret
that it can read, with a recall that no client sees. So a secret in the request of another user has crossed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import lamina
from lamina import Budget, Policy
from lamina.conversations import recall_loop
from lamina.segments import call
from lamina.sessions import Session
from lamina.stores import MemoryStore
from tests.gateway.running import settings_for
from tests.gateway.test_recall import post
from tests.gateway.test_sdks import gateway_in_thread
from tests.plain_client import plain_client
from tests.wrapped.scripted_api import Call, Said, Thought, scripted_api, write_message

pytestmark = pytest.mark.hypothesis

HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')
SECRET = re.compile(r"secret-[a-z]+-[0-9]+")
WINDOW = {"budget": Budget(window=4_000, reserve=300)}
PEOPLE = ("ann", "bob", "cy")
STORIES = count(1)
"""One for each story, so that the stories of one gateway have nothing in common."""

Message = dict[str, Any]


class Step(NamedTuple):
    """What a person does: says one of a few things that all say, tells a secret, goes back, or asks again."""

    person: str
    action: str


class Habits(NamedTuple):
    """Where the secrets of people are: in the system text, in the id of the user, or in what they say."""

    system: bool
    field: bool


ACTIONS = ("hi", "more", "tell", "back", "again")
STEPS = st.lists(st.builds(Step, st.sampled_from(PEOPLE), st.sampled_from(ACTIONS)), min_size=4, max_size=10)
HABITS = st.builds(Habits, st.booleans(), st.booleans())

Send = Callable[[dict[str, Any]], dict[str, Any]]
"""Sends a request through a door, and returns the answer as the client gets it."""


def speak(request: dict[str, Any]) -> Said:
    """A model that looks for every secret it reads, once for each question, and then says the same to all."""
    last = json.dumps(request["messages"][-1])
    secrets = " ".join(sorted({*SECRET.findall(json.dumps(request))}))
    handles = HANDLE.findall(json.dumps(request))
    if "tool_result" in last or not handles:
        return ["Fine."]
    return [
        Thought(f"I know {secrets}."),
        Call("recall", {"key": handles[0], "find": f"know {secrets}"}, "r1"),
    ]


class Person:
    """Somebody with a client: a history like that of all others, and a secret."""

    def __init__(self, name: str, story: int, habits: Habits) -> None:
        self.secret = f"secret-{name}-{story}"
        self.habits = habits
        self.history: list[Message] = []
        for turn in range(9):
            words = f"Part {turn} of story {story}?"
            self.history += [said("user", words), said("assistant", "Go on. " * 240)]

    def act(self, action: str) -> dict[str, Any] | None:
        """The next request; None if there is nothing to go back to."""
        if action == "back":
            if len(self.history) <= 20:
                return None
            del self.history[-2:]
            return None
        if action == "again":
            del self.history[-1:]
        elif action == "tell":
            self.history.append(said("user", f"Keep this: {self.secret}."))
        else:
            self.history.append(said("user", action))
        system = f"You serve {self.secret}." if self.habits.system else "You serve."
        request: dict[str, Any] = {
            "model": "claude-opus-5-5",
            "max_tokens": 100,
            "system": system,
            "messages": list(self.history),
            "tools": [{"name": "read_file", "input_schema": {"type": "object"}}],
        }
        if self.habits.field:
            request["metadata"] = {"user_id": self.secret}
        return request


def said(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def find_crossed(story: Sequence[Step], habits: Habits, send: Send, sent: list[dict[str, Any]]) -> list[str]:
    """Play a story, and return what of one person stands in a request of another."""
    number = next(STORIES)
    people = {name: Person(name, number, habits) for name in PEOPLE}
    crossed: list[str] = []
    for step in story:
        person = people[step.person]
        request = person.act(step.action)
        if request is None:
            continue
        start = len(sent)
        answer = send(request)
        text = next(block["text"] for block in answer["content"] if block["type"] == "text")
        person.history.append(said("assistant", text))
        for left in sent[start:]:
            own = {person.secret}
            crossed += (f"{secret} to {step.person}" for secret in {*SECRET.findall(json.dumps(left))} - own)
    return crossed


@contextmanager
def through_wrap(folder: Path) -> Iterator[tuple[Send, list[dict[str, Any]]]]:
    """One wrapped client for all people. It is made anew for each third request, on the same store."""
    sent: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        sent.append(request)
        return write_message(speak(request), 100)

    def wrap() -> Any:
        policy = Policy(budget=Budget(window=4_000, reserve=300))
        return lamina.wrap(plain_client(answer), store=str(folder / "wrap.db"), policy=policy)

    clients = [wrap(), wrap()]
    numbers = count()

    def send(request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = clients[next(numbers) // 3 % 2].messages.create(**request)
        return answer

    yield send, sent


@contextmanager
def through_gateway(folder: Path) -> Iterator[tuple[Send, list[dict[str, Any]]]]:
    with scripted_api(speak) as api:
        gateway_settings = settings_for(api.url, folder / "gateway.db", upstream=WINDOW)
        with gateway_in_thread(gateway_settings) as gateway:

            def send(request: dict[str, Any]) -> dict[str, Any]:
                answer: dict[str, Any] = json.loads(post(f"{gateway.url}/v1/messages", request))
                return answer

            yield send, api.requests


Door = Callable[[Path], AbstractContextManager[tuple[Send, list[dict[str, Any]]]]]
DOORS: dict[str, Door] = {"wrap": through_wrap, "gateway": through_gateway}


def search(door: Door, folder: Path, *, examples: int) -> list[str]:
    """Play stories through a door until something crosses; what crossed."""
    found: list[str] = []
    with door(folder) as (send, sent):

        @settings(
            max_examples=examples,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(STEPS, HABITS)
        def play(story: list[Step], habits: Habits) -> None:
            if not found:
                found.extend(find_crossed(story, habits, send, sent))

        play()
        bodies = [json.dumps(request) for request in sent]
        assert any('"name": "recall", "input"' in body for body in bodies), "no hidden exchange was sent"
    return found


@pytest.mark.parametrize("door", DOORS)
def test_nothing_crosses(door: str, tmp_path: Path) -> None:
    assert search(DOORS[door], tmp_path, examples=12) == []


@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(STEPS)
def test_nothing_crosses_between_sessions(story: list[Step]) -> None:
    """Sessions have names. The same name in another workspace is another conversation."""
    places = {"ann": ("", "talk"), "bob": ("team", "talk"), "cy": ("", "talk-1")}

    async def play() -> None:
        store = MemoryStore()
        number = next(STORIES)
        for step in story:
            workspace, name = places[step.person]
            secret = f"secret-{step.person}-{number}"
            policy = Policy(budget=Budget(window=2_000, reserve=100), recall="tool")
            async with Session.open(
                store, name, workspace=workspace, model="gpt-5", policy=policy
            ) as session:
                await session.ask(f"Keep this: {secret}." if step.action == "tell" else step.action)
                looking = {"key": "k000000000000", "find": f"{secret} was here"}
                await session.add(call("recall", looking, id=f"n{len(session.log)}", joins=False))
                await session.results()
                await session.record("Go on. " * 90)
                text = json.dumps(await session.request())
            assert {*SECRET.findall(text)} <= {secret}

    anyio.run(play)


def test_the_property_finds_exchanges_that_ignore_the_system_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: an exchange is put back wherever the messages before it are the same.

    Both doors ask the same function, so one is enough to see that the property finds it.
    """
    true = recall_loop._has_place  # noqa: SLF001

    def careless(digests: Any, place: Any) -> bool:
        return true(digests, place.__replace__(system=digests.system_digest))

    monkeypatch.setattr(recall_loop, "_has_place", careless)
    assert search(DOORS["wrap"], tmp_path, examples=12)
