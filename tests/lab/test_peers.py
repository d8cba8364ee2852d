from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.peers.catalogue import PEERS, Peer
from bench.peers.policies import PeerPolicy, command

ROOT = Path(__file__).resolve().parents[2]
ODD = Path(__file__).with_name("odd_peers.py")

SYSTEM = {"role": "system", "content": "Be brief."}


class Sizes(NamedTuple):
    window: int = 2000
    room: int = 1800
    trigger: int = 1200
    target: int = 600


@pytest.fixture
def policies() -> Iterator[list[PeerPolicy]]:
    made: list[PeerPolicy] = []
    yield made
    for policy in made:
        policy.close()


@pytest.fixture
def odd(policies: list[PeerPolicy]) -> Any:
    def make(name: str) -> PeerPolicy:
        peer = Peer(
            name=name,
            title=name,
            environment="odd",
            package="lamina",
            configured="",
            counts="",
            stateful=True,
        )
        policies.append(PeerPolicy(peer, command(sys.executable, ODD, name)))
        return policies[-1]

    return make


def say(*texts: str) -> dict[str, Any]:
    return {"messages": [SYSTEM, *({"role": "user", "content": text} for text in texts)]}


def test_a_peer_answers_with_messages_and_its_time(odd: Any) -> None:
    answer = odd("newest").start(Sizes())(say("hello"))
    assert answer["messages"] == say("hello")["messages"]
    assert answer["seconds"] >= 0


def test_a_peer_keeps_its_state_within_a_conversation_and_not_beyond(odd: Any) -> None:
    policy = odd("newest")
    long = [f"{number} " + "many words " * 100 for number in range(12)]
    ask = policy.start(Sizes())
    cut = [ask(say(*long[:end]))["messages"] for end in range(1, 13)][-1]
    assert cut[0] == SYSTEM
    assert cut[-1]["content"] == long[-1]
    assert len(cut) < 12
    assert policy.start(Sizes())(say("anew"))["messages"] == say("anew")["messages"]


def test_only_what_is_new_goes_through_the_pipe(odd: Any) -> None:
    ask = odd("told").start(Sizes())
    assert ask(say("one", "two"))["messages"][1]["content"] == ["one", "two"]
    assert ask(say("one", "two", "three"))["messages"][1]["content"] == ["three"]


def test_a_history_that_changed_is_told_anew_to_a_new_peer(odd: Any) -> None:
    ask = odd("told").start(Sizes())
    first = ask(say("one", "two"))["messages"][1]
    again = ask(say("other", "two", "three"))["messages"][1]
    assert again["content"] == ["other", "two", "three"]
    assert again["made"] == first["made"] + 1


def test_limits_are_less_by_the_tools_and_the_system_text_that_a_library_never_sees(odd: Any) -> None:
    tools = [{"type": "function", "function": {"name": "read", "description": "words " * 200}}]
    policy = odd("told")
    bare = policy.start(Sizes())(say("hi"))["messages"][1]
    with_tools = policy.start(Sizes())({**say("hi"), "tools": tools})["messages"][1]
    assert Sizes().trigger - 20 < bare["limit"] < Sizes().trigger
    assert 200 < bare["limit"] - with_tools["limit"] < 260
    assert bare["goal"] - with_tools["goal"] == bare["limit"] - with_tools["limit"]


def test_system_text_held_apart_comes_back_first(odd: Any) -> None:
    ask = odd("apart").start(Sizes())
    assert ask(say("a"))["messages"][0] == SYSTEM
    assert ask(say("a", "b"))["messages"] == say("a", "b")["messages"]


def test_what_a_library_left_alone_comes_back_as_it_was_and_what_it_cleared_keeps_its_call(odd: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"b":1,  "a":2}'}}
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "look"}], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "secret", "name": "first"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "another secret", "name": "second under this id"},
    ]
    sent = odd("reworded").start(Sizes())({"messages": messages})["messages"]
    assert [at for at, (one, two) in enumerate(zip(sent, messages, strict=True)) if one != two] == [3, 5]
    assert sent[3] == {**messages[3], "content": "[cleared]"}
    assert sent[5] == {**messages[5], "content": "another [cleared]"}


def test_every_peer_has_its_pins_and_its_worker() -> None:
    workers = ROOT / "bench" / "peers" / "workers"
    environments = {peer.environment for peer in PEERS.values()}
    assert {path.stem for path in (ROOT / "requirements" / "peers").glob("*.txt")} == environments
    files = {path.stem.replace("_", "-") for path in workers.glob("*.py")} - {"serve", "--init--"}
    assert files == environments
    for peer in PEERS.values():
        pins = (ROOT / "requirements" / "peers" / f"{peer.environment}.txt").read_text(encoding="utf-8")
        assert f"\n{peer.package}==" in pins
        assert f'"{peer.name}"' in (workers / f"{peer.environment.replace('-', '_')}.py").read_text(
            encoding="utf-8"
        )
