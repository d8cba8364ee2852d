from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.peers.catalogue import PEERS, Peer, interpreter, version
from bench.peers.policies import Ask, PeerPolicy, command, peer_policy
from bench.peers.process import PeerFailed, Worker
from lamina.errors import BadInput, LaminaError
from tools.peers import conversation, led, main, tried

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
    def make(name: str, *, limit: float = 20.0) -> PeerPolicy:
        peer = Peer(
            name=name,
            title=name,
            environment="odd",
            package="lamina",
            configured="",
            counts="",
            stateful=True,
        )
        policies.append(PeerPolicy(peer, command(sys.executable, ODD, name), limit=limit))
        return policies[-1]

    return make


def say(*texts: str) -> dict[str, Any]:
    return {"messages": [SYSTEM, *({"role": "user", "content": text} for text in texts)]}


def failure(ask: Ask, request: dict[str, Any]) -> str:
    with pytest.raises(PeerFailed) as caught:
        ask(request)
    return caught.value.reason


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


def test_what_a_library_prints_does_not_stand_between_the_answers(odd: Any) -> None:
    ask = odd("faulty").start(Sizes())
    assert ask(say("print"))["messages"] == say("print")["messages"]
    assert ask(say("print", "on"))["messages"] == say("print", "on")["messages"]


def test_a_late_peer_is_killed_and_its_conversation_stays_failed(odd: Any) -> None:
    policy = odd("faulty", limit=0.5)
    ask = policy.start(Sizes())
    assert failure(ask, say("sleep")) == "no answer within 0.5 s"
    assert failure(ask, say("awake")) == "no answer within 0.5 s"
    policy.limit = 20.0
    assert policy.start(Sizes())(say("awake"))["messages"] == say("awake")["messages"]


def test_a_peer_that_dies_says_its_last_words(odd: Any) -> None:
    ask = odd("faulty").start(Sizes())
    assert failure(ask, say("die")) == "ended with 3: no more memory"


def test_a_peer_that_raises_fails_its_conversation_and_keeps_its_process(odd: Any) -> None:
    policy = odd("faulty")
    ask = policy.start(Sizes())
    assert failure(ask, say("raise")) == "ValueError: cannot count"
    assert failure(ask, say("go on")) == "ValueError: cannot count"
    before = policy._worker  # noqa: SLF001 - whether the process is the same shows nowhere else
    policy.start(Sizes())
    assert policy._worker is before  # noqa: SLF001 - as above


def test_a_library_that_cannot_be_loaded_fails_at_the_start(odd: Any) -> None:
    with pytest.raises(PeerFailed, match="broken: ImportError: no module of that name"):
        odd("broken").start(Sizes())


def test_a_later_conversation_ends_the_one_before(odd: Any) -> None:
    policy = odd("newest")
    first = policy.start(Sizes())
    policy.start(Sizes())
    assert failure(first, say("hello")) == "a later conversation was started"


def test_failures_are_errors_of_lamina() -> None:
    assert issubclass(PeerFailed, LaminaError)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("input(); print('hello')", "answered with something other than one JSON object in one line"),
        ("input(); print('[1]')", "answered with something other than one JSON object in one line"),
        ("input(); print('{}\\n{}')", "answered with something other than one JSON object in one line"),
        ("input(); print('{')", "answered with something other than one JSON object in one line"),
        ("input(); print('x' * 3_000_000)", "an answer of more than 1,000,000 bytes"),
        ("input()", "ended with 0"),
        ("input(); print('{', end='', flush=True); input()", "no answer within 1 s"),
        ("import time; time.sleep(60)", "no answer within 1 s"),
    ],
)
def test_a_process_that_does_not_answer_in_one_line_of_json_is_killed(script: str, reason: str) -> None:
    worker = Worker("odd", (sys.executable, "-c", script), most=1_000_000)
    with pytest.raises(PeerFailed) as caught:
        worker.ask({"messages": ["x" * 300_000]}, limit=1)  # more than a pipe holds
    assert caught.value.reason.startswith(reason)
    assert not worker.alive
    with pytest.raises(PeerFailed, match="was ended before this call"):
        worker.ask({}, limit=1)


def test_large_lines_go_both_ways() -> None:
    worker = Worker(
        "echo", (sys.executable, "-c", "import sys\nfor line in sys.stdin: print(line, end='', flush=True)")
    )
    question = {"messages": ["x" * 5_000_000]}
    assert worker.ask(question, limit=20) == question
    worker.kill()


def test_a_missing_environment_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="run `make peers`"):
        peer_policy("headroom", home=tmp_path)


def test_an_unknown_peer_names_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"no peer 'nobody'; there are: pydantic-ai-sliding, "):
        peer_policy("nobody")


def test_the_version_is_read_from_the_environment(tmp_path: Path) -> None:
    peer = PEERS["strands"]
    python = tmp_path / "strands" / "bin" / "python"
    info = tmp_path / "strands" / "lib" / "python3.11" / "site-packages" / "strands_agents-9.8.7.dist-info"
    for folder in (python.parent, info):
        folder.mkdir(parents=True)
    python.touch()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strands-agents\nVersion: 9.8.7\n")
    assert interpreter(peer, tmp_path) == python
    assert version(peer, tmp_path) == "9.8.7"


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


def test_the_conversation_of_the_self_check_is_valid_and_long() -> None:
    result = tried(lambda request: {**request, "seconds": 0.0}, conversation())
    assert len(conversation()) == 60
    assert (result.refused, result.kept) == (0, 1.0)
    assert result.over > 0


def test_the_self_check_sees_what_a_peer_does(odd: Any) -> None:
    result = tried(odd("newest").start(Sizes(5000, 4500, 3600, 2250)), conversation())
    assert result.over == 0
    assert result.refused > 0
    assert 0.5 < result.kept < 1.0
    one, two, three = (say(text)["messages"] for text in ("a", "b", "a"))
    assert led(one, three) == 1.0
    assert 0.0 < led(one, two) < 1.0


def test_the_self_check_names_a_missing_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="run `make peers`"):
        main([])
