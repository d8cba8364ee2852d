"""What holds for every cache, whatever its algorithm."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.caches import CacheRules, Stream, all_rules, simulator
from lamina.caches.prefix_path import build_path, count_common_items
from lamina.caches.simulate import SentBlocks
from tests.caches.streams import stream

EACH = list(all_rules().values())

each_cache = pytest.mark.parametrize("rules", EACH, ids=lambda rules: rules.name)
words = st.lists(st.sampled_from("u1 u2 a1 c1 c2 r1 r2 t1 i1 uab uac".split()), min_size=1, max_size=8)
marks = st.sampled_from(["", "", "@5m", "@1h", "@30m", "@12h"])
requests = st.lists(st.tuples(words, marks, st.integers(0, 900), st.booleans()), max_size=8)


def streams(turns: list[tuple[list[str], str, int, bool]]) -> list[tuple[Stream, int]]:
    sent: list[tuple[Stream, int]] = []
    now = 0
    for names, mark, later, grows in turns:
        before = [block.data.decode() for block in sent[-1][0].blocks] if sent and grows else ["T", "S@5m"]
        now += later
        text = " ".join([*before, *names[:-1], names[-1] + mark])
        sent.append((stream(text, model="some-model-1", tokens=700), now))
    return sent


@given(rules=st.sampled_from(EACH), turns=requests)
def test_every_token_is_counted_once_and_nothing_is_read_that_was_not_sent(
    rules: CacheRules, turns: list[tuple[list[str], str, int, bool]]
) -> None:
    cache, seen = simulator(rules), SentBlocks()
    for sent, at in streams(turns):
        tally = cache.send(sent, at=at)
        path = build_path(sent, rules)
        assert tally.total == path.tokens
        assert min(tally.read, tally.written, tally.written_long, tally.uncached) >= 0
        assert tally.read <= seen.count_prefix_tokens(path, 0)
        assert tally.why
        seen.add(path, float("inf"))


@given(rules=st.sampled_from(EACH), turns=requests)
def test_the_same_requests_at_the_same_times_take_the_same(
    rules: CacheRules, turns: list[tuple[list[str], str, int, bool]]
) -> None:
    sent = streams(turns)
    one, other = simulator(rules), simulator(rules)
    assert [one.send(s, at=at) for s, at in sent] == [other.send(s, at=at) for s, at in sent]


@each_cache
def test_a_conversation_that_grows_is_read_but_for_what_is_new(rules: CacheRules) -> None:
    cache, text = simulator(rules), "T S u0"
    for turn in range(1, 6):
        tally = cache.send(stream(f"{text}@{rules.lifetime or '5m'}", tokens=4096), at=turn)
        if turn > 1:
            assert tally.total - tally.read == pytest.approx(2 * 4096, abs=rules.granularity)
        text += f" a{turn} u{turn}"


@given(st.binary(max_size=9), st.binary(max_size=9), st.integers(0, 9000))
def test_overlap_is_where_two_sequences_part(one: bytes, other: bytes, same: int) -> None:
    common = count_common_items(b"x" * same + one, b"x" * same + other)
    pairs = zip(one, other, strict=False)
    parted = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    assert common == same + parted


def test_a_path_goes_on_as_if_it_had_been_one_stream() -> None:
    rules = all_rules()["anthropic"]
    whole = stream("T S u1 a1 u2", settings={"effort": b"1"})
    part = msgspec.structs.replace(whole, blocks=whole.blocks[:3])
    assert build_path(part, rules).extended(whole.blocks[3:]) == build_path(whole, rules)
