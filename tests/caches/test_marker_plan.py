"""Where markers go: never more than allowed, never where none may stand, and found again in the next turn."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.caches import Stream, StreamBlock, rules_for, simulator
from lamina.caches.marker_plan import (
    ANSWERED,
    BEHIND,
    HEAD_END,
    LAST_CUT_END,
    LAST_REQUEST_END,
    MESSAGE_BEFORE_LAST,
    REQUEST_END,
    SPOKEN,
    TOOLS,
    plan_markers,
)
from lamina.caches.stream import Sort
from lamina.errors import BadInput

ANTHROPIC, OPENAI, LEGACY = rules_for("anthropic"), rules_for("openai"), rules_for("openai_legacy")


def block(sort: Sort, number: int, *, role: str = "user", tokens: int = 600, **more: Any) -> StreamBlock:
    data = f"{sort} {number}".encode()
    more = {"markable": sort != "thinking", "opens": True} | more
    return StreamBlock(sort=sort, role=role, data=data, place=f"{sort}[{number}]", tokens=tokens, **more)


def request(turns: int, *, tools: int = 1, model: str = "claude-opus-5", **more: Any) -> Stream:
    """Tools, a system text, and texts of user and assistant in turn."""
    head = [*(block("tool", i, role="tool") for i in range(tools)), block("system", 0, role="system")]
    texts = [block("text", i, role="assistant" if i % 2 else "user") for i in range(turns)]
    return Stream(dialect="anthropic", model=model, blocks=(*head, *texts), **more)


def marked(stream: Stream, places: Any) -> Stream:
    blocks = (
        msgspec.structs.replace(one, marker=(places[one.place] or "5m") if one.place in places else "")
        for one in stream.blocks
    )
    return msgspec.structs.replace(stream, blocks=tuple(blocks))


def test_four_places_and_their_reasons() -> None:
    """What the last cut left and the tools take turns; the last request is found from the end."""
    planned = plan_markers(request(30), ANTHROPIC, kept=6, last=28)
    assert planned.reasons == {
        "tool[0]": TOOLS,
        "system[0]": HEAD_END,
        "text[28]": MESSAGE_BEFORE_LAST,
        "text[29]": REQUEST_END,
    }
    assert list(planned.places) == ["tool[0]", "system[0]", "text[28]", "text[29]"]
    planned = plan_markers(request(32), ANTHROPIC, kept=6, last=30)
    assert planned.reasons == {
        "system[0]": HEAD_END,
        "text[4]": LAST_CUT_END,
        "text[30]": MESSAGE_BEFORE_LAST,
        "text[31]": REQUEST_END,
    }
    assert planned.key == ""


def test_the_last_request_is_marked_where_no_other_marker_reaches_it() -> None:
    assert LAST_REQUEST_END not in plan_markers(request(40), ANTHROPIC, last=22).reasons.values()
    assert plan_markers(request(40), ANTHROPIC, last=20).reasons["text[18]"] == LAST_REQUEST_END
    wide = request(10)
    more = tuple(block("text", 100 + at, opens=at == 0) for at in range(30))
    wide = msgspec.structs.replace(wide, blocks=(*wide.blocks, *more))
    planned = plan_markers(wide, ANTHROPIC, last=10)
    assert planned.reasons["text[9]"] == MESSAGE_BEFORE_LAST, "from which the last request is found"
    assert LAST_REQUEST_END not in planned.reasons.values()


def test_after_a_cut_what_it_left_is_marked() -> None:
    planned = plan_markers(request(30), ANTHROPIC, kept=8, cut=True)
    assert planned.reasons == {
        "system[0]": HEAD_END,
        "text[6]": LAST_CUT_END,
        "text[28]": MESSAGE_BEFORE_LAST,
        "text[29]": REQUEST_END,
    }


def test_without_a_past_the_end_of_the_last_request_is_guessed_from_its_answer() -> None:
    turn_blocks = [block("text", 0), block("text", 1, role="assistant")]
    turn_blocks += [block("image", at, opens=at == 0) for at in range(30)]
    stream = msgspec.structs.replace(request(0), blocks=(*request(0).blocks, *turn_blocks))
    assert plan_markers(stream, ANTHROPIC).reasons["text[0]"] == ANSWERED
    last = len(request(0).blocks)  # if it is known, the search from the answer's end finds it
    assert plan_markers(stream, ANTHROPIC, last=last).reasons["text[1]"] == MESSAGE_BEFORE_LAST
    turn_blocks[1:2] = [block("text", at, role="assistant", opens=at == 1) for at in range(1, 31)]
    stream = msgspec.structs.replace(request(0), blocks=(*request(0).blocks, *turn_blocks))
    assert plan_markers(stream, ANTHROPIC).reasons["text[0]"] == ANSWERED


def test_a_place_to_spare_lengthens_the_look_back() -> None:
    planned = plan_markers(request(60, tools=0), ANTHROPIC)
    assert planned.reasons == {
        "system[0]": HEAD_END,
        "text[40]": BEHIND,
        "text[58]": ANSWERED,
        "text[59]": REQUEST_END,
    }
    assert plan_markers(request(3), ANTHROPIC).reasons == {
        "tool[0]": TOOLS,
        "system[0]": HEAD_END,
        "text[0]": ANSWERED,
        "text[2]": REQUEST_END,
    }


def test_a_run_of_calls_or_results_is_one_position() -> None:
    results = tuple(block("result", i, opens=i == 0) for i in range(40))
    stream = request(25, tools=0)
    stream = msgspec.structs.replace(stream, blocks=(*stream.blocks, *results))
    planned = plan_markers(stream, ANTHROPIC)
    assert planned.reasons["result[39]"] == REQUEST_END
    assert planned.reasons["text[6]"] == BEHIND


def test_what_is_surely_too_short_is_marked_only_where_nothing_better_is_left() -> None:
    """A marker below the minimum is free. Counts may be too low: what is near the minimum counts as long."""
    small = request(3, model="claude-opus-4-6")  # 600 tokens a block, and 4,096 are needed
    assert set(plan_markers(small, ANTHROPIC).places) == {"tool[0]", "system[0]", "text[0]", "text[2]"}
    long = request(60, model="claude-opus-4-6")
    assert plan_markers(long, ANTHROPIC, kept=30, last=10).reasons == {
        "text[8]": LAST_REQUEST_END,
        "text[28]": LAST_CUT_END,
        "text[58]": MESSAGE_BEFORE_LAST,
        "text[59]": REQUEST_END,
    }
    near = msgspec.structs.replace(
        long, blocks=tuple(msgspec.structs.replace(one, tokens=1400) for one in long.blocks)
    )
    assert "system[0]" in plan_markers(near, ANTHROPIC, kept=30, last=10).places


def test_nothing_on_what_may_not_carry_one() -> None:
    thought = block("thinking", 0, role="assistant")
    stream = request(3)
    planned = plan_markers(msgspec.structs.replace(stream, blocks=(*stream.blocks, thought)), ANTHROPIC)
    assert "thinking[0]" not in planned.places
    assert planned.reasons["text[2]"] == REQUEST_END


def test_longer_lifetimes_come_first() -> None:
    planned = plan_markers(request(9), ANTHROPIC, stable="1h", tail="5m", last=7)
    assert list(planned.places.values()) == ["1h", "1h", "5m", "5m"]
    assert set(plan_markers(request(9), ANTHROPIC, stable="5m", tail="1h").places.values()) == {"1h"}
    with pytest.raises(BadInput, match="5m, 1h"):
        plan_markers(request(9), ANTHROPIC, stable="2h")


def test_a_model_that_drops_thinking_when_the_user_speaks_is_read_from_before_it() -> None:
    message_blocks = [
        block("text", 0),
        block("thinking", 0, role="assistant"),
        block("call", 0, role="assistant", opens=False),
        block("result", 0),
        *(block("text", at, role="assistant", opens=at == 1) for at in range(1, 31)),
        *(block("image", at, opens=at == 0) for at in range(30)),
    ]
    blocks = (*request(0).blocks, *message_blocks)
    old = Stream(dialect="anthropic", model="claude-sonnet-4-5", blocks=blocks)
    assert plan_markers(old, ANTHROPIC, last=5).reasons["text[0]"] == SPOKEN
    new = msgspec.structs.replace(old, model="claude-opus-5")
    assert plan_markers(new, ANTHROPIC, last=5).reasons["result[0]"] == LAST_REQUEST_END


def test_openai_ends_the_system_text_and_has_a_key() -> None:
    stream = request(9, model="gpt-5.6")
    planned = plan_markers(stream, OPENAI, last=4)
    assert planned.reasons == {"system[0]": HEAD_END}
    assert planned.key.startswith("lamina-")
    assert planned.key == plan_markers(request(20, model="gpt-5.6"), OPENAI).key
    assert planned.key != plan_markers(request(9, tools=2, model="gpt-5.6"), OPENAI).key
    assert plan_markers(msgspec.structs.replace(stream, key="mine"), OPENAI).key == ""
    explicit = msgspec.structs.replace(stream, automatic="explicit")
    assert plan_markers(explicit, OPENAI, kept=4).reasons == {
        "system[0]": HEAD_END,
        "text[2]": LAST_CUT_END,
        "text[8]": REQUEST_END,
    }


@pytest.mark.parametrize("rules", [LEGACY, rules_for("unknown"), rules_for("vllm"), rules_for("gemini")])
def test_caches_that_take_no_markers_get_nothing(rules: Any) -> None:
    assert plan_markers(request(9, model="gpt-4o"), rules) == plan_markers(request(0), rules)
    assert plan_markers(request(9, model="gpt-4o"), rules).key == ""


sorts = st.sampled_from(("text", "call", "result", "thinking", "image"))


@given(st.lists(st.tuples(sorts, st.integers(0, 900), st.booleans()), max_size=60), st.data())
def test_any_stream_gets_a_plan_that_the_rules_allow(drawn: list[Any], data: st.DataObject) -> None:
    blocks = tuple(block(sort, i, tokens=size, markable=may) for i, (sort, size, may) in enumerate(drawn))
    stream = msgspec.structs.replace(request(0), blocks=(*request(0).blocks, *blocks))
    number = st.none() | st.integers(0, len(stream.blocks) + 2)
    past: dict[str, Any] = {"kept": data.draw(number), "last": data.draw(number)}
    past |= {
        "cut": data.draw(st.booleans()),
        "stable": data.draw(st.sampled_from(("", "5m", "1h"))),
        "tail": data.draw(st.sampled_from(("", "1h"))),
    }
    planned = plan_markers(stream, ANTHROPIC, **past)
    sums = dict(
        zip((b.place for b in stream.blocks), accumulate(b.tokens for b in stream.blocks), strict=True)
    )
    assert len(planned.places) <= 4
    assert all(one.markable for one in stream.blocks if one.place in planned.places)
    assert stream.tokens < 512 or any(sums[place] >= 512 for place in planned.places)
    words = [word == "1h" for word in planned.places.values()]
    assert words == sorted(words, reverse=True)
    assert planned == plan_markers(stream, ANTHROPIC, **past)


@given(st.integers(1, 40), st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_every_request_reads_the_whole_of_the_one_before(first: int, steps: list[int]) -> None:
    """However long a step is, what the last request wrote is within reach of a marker."""
    cache, last, length, sent = simulator(ANTHROPIC), None, first, 0
    for step in [0, *steps]:
        length += step
        stream = request(length)
        tally = cache.send(marked(stream, plan_markers(stream, ANTHROPIC, last=last).places))
        assert tally.read == sent
        last, sent = len(stream.blocks) - 1, stream.tokens


def test_what_a_cut_left_and_the_tools_are_both_kept_alive() -> None:
    """They take turns, so each is marked at every second request, and lives from one to the next."""
    seen: dict[str, list[int]] = {TOOLS: [], LAST_CUT_END: []}
    for turns in range(12, 40, 2):
        planned = plan_markers(request(turns), ANTHROPIC, kept=4, last=turns - 1)
        for why in planned.reasons.values():
            if why in seen:
                seen[why].append(turns)
    assert all(one + 4 == other for places in seen.values() for one, other in pairwise(places))
    assert set(seen[TOOLS]).isdisjoint(seen[LAST_CUT_END])
