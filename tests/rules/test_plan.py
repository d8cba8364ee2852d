"""Where markers go: never more than allowed, never where none may stand, and found again in the next turn."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, Layout, Ledger, Options, build, fit_request
from lamina.clients.bedrock import with_cache_points
from lamina.dialects.anthropic import DIALECT
from lamina.dialects.anthropic.mark import mark
from lamina.dialects.anthropic.stream import stream as stream_of
from lamina.dialects.port import Marking
from lamina.errors import BadInput
from lamina.rules import rules_for, simulator
from lamina.rules.plan import BEHIND, LAST, LOWERED, SPOKEN, STABLE, TAIL, TOOLS, plan
from lamina.stream import Block, Sort, Stream
from lamina.testing.sessions import calls, session

ANTHROPIC, OPENAI, LEGACY = rules_for("anthropic"), rules_for("openai"), rules_for("openai_legacy")


def block(sort: Sort, number: int, *, role: str = "user", tokens: int = 600, **more: Any) -> Block:
    data = f"{sort} {number}".encode()
    more = {"markable": sort != "thinking", "opens": True} | more
    return Block(sort=sort, role=role, data=data, place=f"{sort}[{number}]", tokens=tokens, **more)


def request(said: int, *, tools: int = 1, model: str = "claude-opus-5", **more: Any) -> Stream:
    """Tools, a system text, and texts of user and assistant in turn."""
    head = [*(block("tool", i, role="tool") for i in range(tools)), block("system", 0, role="system")]
    texts = [block("text", i, role="assistant" if i % 2 else "user") for i in range(said)]
    return Stream(dialect="anthropic", model=model, blocks=(*head, *texts), **more)


def marked(stream: Stream, places: Any) -> Stream:
    blocks = (
        msgspec.structs.replace(one, marker=(places[one.place] or "5m") if one.place in places else "")
        for one in stream.blocks
    )
    return msgspec.structs.replace(stream, blocks=tuple(blocks))


def test_four_places_and_their_reasons() -> None:
    found = plan(request(30), ANTHROPIC, cut=6, last=28)
    assert found.reasons == {
        "system[0]": STABLE, "text[4]": LOWERED, "text[26]": LAST, "text[29]": TAIL,
    }  # fmt: skip
    assert list(found.places) == ["system[0]", "text[4]", "text[26]", "text[29]"]
    assert found.key == ""


def test_without_a_past_the_look_back_is_lengthened() -> None:
    found = plan(request(60), ANTHROPIC)
    assert found.reasons == {
        "system[0]": STABLE, "text[21]": BEHIND, "text[40]": BEHIND, "text[59]": TAIL,
    }  # fmt: skip


def test_a_place_to_spare_ends_the_tools() -> None:
    assert plan(request(3), ANTHROPIC).reasons == {"tool[0]": TOOLS, "system[0]": STABLE, "text[2]": TAIL}


def test_a_run_of_calls_or_results_is_one_position() -> None:
    results = tuple(block("result", i, opens=i == 0) for i in range(40))
    stream = request(25)
    stream = msgspec.structs.replace(stream, blocks=(*stream.blocks, *results))
    found = plan(stream, ANTHROPIC)
    assert found.reasons["result[39]"] == TAIL
    assert found.reasons["text[6]"] == BEHIND


def test_nothing_below_the_minimum() -> None:
    small = request(3, model="claude-opus-4-6")
    assert plan(small, ANTHROPIC).places == {}
    assert list(plan(request(6, model="claude-opus-4-6"), ANTHROPIC).places) == ["text[5]"]


def test_nothing_on_what_may_not_carry_one() -> None:
    thought = block("thinking", 0, role="assistant")
    stream = request(3)
    found = plan(msgspec.structs.replace(stream, blocks=(*stream.blocks, thought)), ANTHROPIC)
    assert "thinking[0]" not in found.places
    assert found.reasons["text[2]"] == TAIL


def test_longer_lifetimes_come_first() -> None:
    found = plan(request(9), ANTHROPIC, stable="1h", tail="5m", last=7)
    assert list(found.places.values()) == ["1h", "1h", "5m", "5m"]
    assert set(plan(request(9), ANTHROPIC, stable="5m", tail="1h").places.values()) == {"1h"}
    with pytest.raises(BadInput, match="5m, 1h"):
        plan(request(9), ANTHROPIC, stable="2h")


def test_a_model_that_drops_thinking_when_the_user_speaks_is_read_from_before_it() -> None:
    said = [
        block("text", 0), block("thinking", 0, role="assistant"), block("call", 0, opens=False),
        block("result", 0), block("text", 1, role="assistant"), block("text", 2),
    ]  # fmt: skip
    blocks = (*request(0).blocks, *said)
    old = Stream(dialect="anthropic", model="claude-sonnet-4-5", blocks=blocks)
    assert plan(old, ANTHROPIC, last=5).reasons["text[0]"] == SPOKEN
    new = msgspec.structs.replace(old, model="claude-opus-5")
    assert plan(new, ANTHROPIC, last=5).reasons["result[0]"] == LAST


def test_openai_ends_the_system_text_and_has_a_key() -> None:
    stream = request(9, model="gpt-5.6")
    found = plan(stream, OPENAI, last=4)
    assert found.reasons == {"system[0]": STABLE}
    assert found.key.startswith("lamina-")
    assert found.key == plan(request(20, model="gpt-5.6"), OPENAI).key
    assert found.key != plan(request(9, tools=2, model="gpt-5.6"), OPENAI).key
    assert plan(stream, OPENAI, key="support").key == "support"
    assert plan(msgspec.structs.replace(stream, key="mine"), OPENAI, key="support").key == ""
    explicit = msgspec.structs.replace(stream, automatic="explicit")
    assert plan(explicit, OPENAI, cut=4).reasons == {"system[0]": STABLE, "text[2]": LOWERED, "text[8]": TAIL}


@pytest.mark.parametrize("rules", [LEGACY, rules_for("unknown"), rules_for("vllm"), rules_for("gemini")])
def test_caches_that_take_no_markers_get_nothing(rules: Any) -> None:
    assert plan(request(9, model="gpt-4o"), rules) == plan(request(0), rules)
    assert plan(request(9, model="gpt-4o"), rules).key == ""


sorts = st.sampled_from(("text", "call", "result", "thinking", "image"))


@given(st.lists(st.tuples(sorts, st.integers(0, 900), st.booleans()), max_size=60), st.data())
def test_any_stream_gets_a_plan_that_the_rules_allow(drawn: list[Any], data: st.DataObject) -> None:
    said = tuple(block(sort, i, tokens=size, markable=may) for i, (sort, size, may) in enumerate(drawn))
    stream = msgspec.structs.replace(request(0), blocks=(*request(0).blocks, *said))
    number = st.none() | st.integers(0, len(stream.blocks) + 2)
    known: dict[str, Any] = {"cut": data.draw(number), "last": data.draw(number)}
    known |= {
        "stable": data.draw(st.sampled_from(("", "5m", "1h"))),
        "tail": data.draw(st.sampled_from(("", "1h"))),
    }
    found = plan(stream, ANTHROPIC, **known)
    sums = dict(
        zip((b.place for b in stream.blocks), accumulate(b.tokens for b in stream.blocks), strict=True)
    )
    assert len(found.places) <= 4
    assert all(one.markable for one in stream.blocks if one.place in found.places)
    assert all(sums[place] >= 512 for place in found.places)
    words = [word == "1h" for word in found.places.values()]
    assert words == sorted(words, reverse=True)
    assert found == plan(stream, ANTHROPIC, **known)


@given(st.integers(1, 40), st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_every_request_reads_the_whole_of_the_one_before(first: int, steps: list[int]) -> None:
    """However long a step is, what the last request wrote is within reach of a marker."""
    cache, last, length, sent = simulator(ANTHROPIC), None, first, 0
    for step in [0, *steps]:
        length += step
        stream = request(length)
        tally = cache.send(marked(stream, plan(stream, ANTHROPIC, last=last).places))
        assert tally.read == sent
        last, sent = len(stream.blocks) - 1, stream.tokens


def by_hand(given: dict[str, Any]) -> dict[str, Any]:
    """What most clients do: a marker on the system text and one on the last message."""
    blocks = stream_of(given).blocks
    chosen = [[b for b in blocks if b.sort == "system"][-1], [b for b in blocks if b.markable][-1]]
    return mark(given, Marking(places={b.place: "" for b in chosen}))


def weighed(given: dict[str, Any]) -> Stream:
    stream = stream_of(given)
    return stream.weighed(len(one.data) // 4 for one in stream.blocks)


def requests(seed: int, *, model: str, wide: int) -> list[dict[str, Any]]:
    """A generated session as requests; the user's words come in `wide` blocks."""
    logged = Options(layout=Layout(context="logged"), repairs=DIALECT.repairs)
    made = []
    for log in calls(session(seed, turns=4, steps=6, thinking=True)):
        given = DIALECT.render(build(log, options=logged)) | {"model": model, "max_tokens": 1000}
        for message in given["messages"]:
            if isinstance(message["content"], str):
                texts = [f"{i}: {message['content'][:80]}" for i in range(wide)]
                message["content"] = [{"type": "text", "text": text} for text in texts]
        made.append(given)
    return made


@pytest.mark.parametrize(
    ("model", "wide"), [("claude-opus-5", 1), ("claude-opus-5", 25), ("claude-sonnet-4-5", 1)]
)
def test_on_generated_sessions_a_plan_reads_at_least_as_much_as_markers_by_hand(
    model: str, wide: int
) -> None:
    caches = {"plan": simulator(ANTHROPIC), "hand": simulator(ANTHROPIC)}
    read, cuts, ledger = dict.fromkeys(caches, 0), 0, Ledger()
    for at, asked in enumerate(requests(3, model=model, wide=wide)):
        fitted = fit_request(asked, budget=Budget(window=16_000), ledger=ledger, breakpoints="plan")
        bare = mark(fitted.request, Marking())
        for name, sent in (("plan", fitted.request), ("hand", by_hand(bare))):
            read[name] += caches[name].send(weighed(sent), at=20.0 * at).read
        ledger, cuts = fitted.ledger, cuts + (fitted.envelope.cut is not None)
        assert DIALECT.check(fitted.request) == []
    assert cuts > 0
    assert read["plan"] >= read["hand"] > 0
    if wide > 1 or model == "claude-sonnet-4-5":
        assert read["plan"] > read["hand"]


def test_cache_points_of_bedrock_stand_after_their_blocks() -> None:
    point = {"cachePoint": {"type": "default"}}
    given: dict[str, Any] = {
        "modelId": "anthropic.claude-opus-5",
        "system": [{"text": "You read files."}, point],
        "toolConfig": {"tools": [{"toolSpec": {"name": "read_file"}}]},
        "messages": [{"role": "user", "content": [{"text": "a"}, point, {"text": "b"}]}],
    }
    done = with_cache_points(given, {"tools[0]": "1h", "messages[0].content[1]": ""})
    assert done["toolConfig"]["tools"][1] == {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert done["system"] == [{"text": "You read files."}]
    assert done["messages"][0]["content"] == [{"text": "a"}, {"text": "b"}, point]
    assert given["system"][1] is point
    with pytest.raises(BadInput, match=r"system\[4\]"):
        with_cache_points(given, {"system[4]": ""})


def test_places_stay_while_a_conversation_grows() -> None:
    """What was marked as lasting is marked again, and what ended a request is marked in the next."""
    before, last = None, None
    for said in range(4, 30, 2):
        found = plan(request(said), ANTHROPIC, cut=4, last=last)
        if before is not None:
            kept = [place for place, why in before.reasons.items() if why in (STABLE, LOWERED, TAIL)]
            assert set(kept) <= set(found.places)
        before, last = found, said + 1
