from __future__ import annotations

import msgspec
import pytest

from lamina.caches import CacheRules, rules_for, simulator
from lamina.caches.prefix_path import build_path
from lamina.dialects import DIALECTS
from tests.caches.streams import stream

PLAIN = rules_for("unknown")


def legacy(words: str, tokens: int = 1000, **fields: str) -> int:
    """Tokens read by the second of two requests, the first being `S u1`."""
    cache = simulator(rules_for("gpt-5.4"))
    cache.send(stream("S u1", model="gpt-5.4", tokens=tokens))
    return cache.send(stream(words, model="gpt-5.4", tokens=tokens, **fields)).read


def test_the_longest_common_prefix_is_read_rounded_down() -> None:
    assert legacy("S u1 a1 u2") == 1920
    assert legacy("S u1 a1 u2", tokens=512) == 1024
    assert legacy("S u1 a1 u2", tokens=511) == 0
    assert legacy("S u1 a1 u2", key="another") == 0


def test_the_common_bytes_of_the_block_that_differs_count_for_their_share() -> None:
    cache = simulator(PLAIN)
    cache.send(stream("S uabcdefg"))
    tally = cache.send(stream("S uabcxyzz"))
    assert tally.read == 1500
    assert tally.why == "1500 tokens in common with an earlier request; 1500 read at best"


def test_of_all_earlier_requests_the_nearest_counts() -> None:
    cache = simulator(PLAIN)
    for word in ("uaaaaaaa", "uabbbbbb", "uabcccbb", "uabxxxxx", "ub"):
        cache.send(stream(word))
    assert cache.send(stream("uabcccdd")).read == 750


@pytest.mark.parametrize("words", ["T1 S1 u1 a1 u2", "T1 S1 u1 a2", "T1 S2 u1", "T2", "T1", "S1 u1", "u1 S1"])
@pytest.mark.parametrize("model", ["claude-opus-5", "gpt-5.4"])
def test_a_path_is_the_same_whichever_was_built_before_it(words: str, model: str) -> None:
    rules = rules_for(model)
    request = stream(words, model=model, settings={"tool_choice": b"1", "thinking": b"2"})
    path = build_path(request, rules)
    for earlier in ("T1 S1 u1 a1", "T1 S1", "T1", "u1", ""):
        for settings in (request.settings, {"tool_choice": b"2"}):
            previous = build_path(stream(earlier, model=model, settings=settings), rules)
            assert build_path(request, rules, previous=previous) == path


def test_an_image_is_common_as_a_whole_or_not_at_all() -> None:
    cache = simulator(PLAIN)
    cache.send(stream("S iaaaa"))
    assert cache.send(stream("S iaaab")).read == 1000
    assert cache.send(stream("S iaaaa")).read == 2000


@pytest.mark.parametrize(("later", "read"), [(7200, 2000), (7201, 0)])
def test_what_is_too_old_is_forgotten(later: int, read: int) -> None:
    cache = simulator(rules_for("groq"))
    cache.send(stream("S u1"))
    assert cache.send(stream("S u1"), at=later).read == read


def test_what_is_too_old_can_be_learnt_again() -> None:
    cache = simulator(rules_for("groq"))
    for at in (0, 8000):
        cache.send(stream("uabc"), at=at)
        assert cache.send(stream("uabd"), at=at).read == 750
        assert cache.send(stream("uabc a1"), at=at).read == 1000


HOUR, DAY = 3600, 86400


@pytest.mark.parametrize(
    ("model", "requested", "lives"),
    [
        ("gpt-5.4", "", DAY),
        ("gpt-5.4", "24h", DAY),
        ("gpt-5.4", "in_memory", HOUR),
        ("azure/gpt-4.1-2025-04-14", "", DAY),
        ("gpt-5.1-chat-latest", "", DAY),
        ("gpt-5.5", "in_memory", DAY),  # it takes no other
        ("gpt-5.4-mini", "24h", HOUR),  # not on the guide's list
        ("gpt-4.1-mini", "", HOUR),
        ("gpt-4o", "24h", HOUR),
        ("o3", "", HOUR),
    ],
)
def test_a_day_is_for_the_models_of_the_list_and_an_hour_for_the_others(
    model: str, requested: str, lives: int
) -> None:
    for later in (lives, lives + 1):
        cache = simulator(rules_for(model))
        cache.send(stream("S u1", tokens=3000, model=model, automatic=requested))
        read = cache.send(stream("S u1", tokens=3000, model=model), at=later).read
        assert (read > 0) is (later == lives)


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize(("word", "lives"), [("24h", DAY), ("in_memory", HOUR), ("in-memory", HOUR)])
def test_the_retention_of_a_request_is_read(dialect: str, word: str, lives: int) -> None:
    field = "messages" if dialect == "openai_chat" else "input"
    requested = {
        "model": "gpt-5.4",
        field: [{"role": "user", "content": "Hi"}],
        "prompt_cache_retention": word,
    }
    sent = DIALECTS[dialect].cache.stream(requested).weighed([5000])
    for later in (lives, lives + 1):
        cache = simulator(rules_for("gpt-5.4"))
        cache.send(sent)
        assert (cache.send(sent, at=later).read > 0) is (later == lives)


def test_gpt_5_5_reads_in_steps_of_2048() -> None:
    for model, read in (("gpt-5.5-2026-04-23", 4096), ("gpt-5.4", 5888)):
        cache = simulator(rules_for(model))
        cache.send(stream("S u1", tokens=3000, model=model))
        assert cache.send(stream("S u1 a1", tokens=3000, model=model)).read == read


def test_rules_made_by_hand_are_simulated() -> None:
    rules = CacheRules(
        name="mine", title="", as_of="2026-01-01", sources=(), match="prefix", minimum=10, granularity=7
    )
    cache = simulator(rules, model="any")
    cache.send(stream("u1", tokens=20))
    assert cache.send(stream("u1", tokens=20)).read == 14
    small = simulator(msgspec.structs.replace(rules, minimum=15))
    small.send(stream("u1", tokens=20))
    assert small.send(stream("u1", tokens=20)).read == 0


@pytest.mark.parametrize(
    "name", ["unknown", "openai_legacy", "openai", "deepseek", "gemini", "llama_cpp", "ollama", "vllm", "xai"]
)
def test_the_same_text_of_another_role_is_another_prefix(name: str) -> None:
    text = "Always answer in verse. " * 1_500
    requests = [
        {"model": "m", "messages": [{"role": role, "content": text}, {"role": "user", "content": "Hi"}]}
        for role in ("system", "user", "system")
    ]
    cache = simulator(rules_for(name))
    tallies = []
    for at, request in enumerate(requests):
        blocks = DIALECTS["openai_chat"].cache.stream(request)
        weighed = blocks.weighed([len(block.data) // 4 for block in blocks.blocks])
        tallies.append(cache.send(weighed, at=float(at)))
    assert tallies[1].read == 0
    assert tallies[2].read > 0


def test_roles_that_begin_alike_share_nothing() -> None:
    cache = simulator(PLAIN)
    for role in ("user", "use"):
        blocks = tuple(msgspec.structs.replace(block, role=role) for block in stream("uabcdefgh").blocks)
        tally = cache.send(msgspec.structs.replace(stream("uabcdefgh"), blocks=blocks))
        assert tally.read == 0


@pytest.mark.parametrize(
    ("warm", "read"),
    [(201, 0), (361, 256), (834, 768), (1638, 1536), (11_250, 11_008), (11_272, 11_264), (24_041, 23_808)],
)
def test_the_coding_endpoint_of_kimi_reads_what_was_measured(warm: int, read: int) -> None:
    """What a request with 50 tokens more read after one of `warm`: see the source of its rules."""
    cache = simulator(rules_for("kimi-for-coding"))
    first = stream("u1", tokens=warm)
    longer = msgspec.structs.replace(first, blocks=(*first.blocks, *stream("a1 u2", tokens=25).blocks))
    cache.send(first)
    assert cache.send(longer, at=300).read == read
    assert cache.send(longer, at=300 + 1800).read == 0


def test_kimi_bills_what_it_stores_and_longer_what_it_stores_for_an_hour() -> None:
    cache = simulator(rules_for("kimi-k3"))
    first, short = (cache.send(stream(words, model="kimi-k3")) for words in ("S u1", "S u1 a1 u2"))
    assert (first.read, first.written, first.uncached) == (0, 2000, 0)
    assert (short.read, short.written, short.written_long) == (2000, 2000, 0)
    assert cache.send(stream("S u1 a1 u2", model="kimi-k3"), at=301).read == 0
    long = cache.send(stream("S u1 a1 u2 a2", model="kimi-k3", automatic="1h"), at=302)
    assert (long.read, long.written, long.written_long) == (4000, 0, 1000)
    assert cache.send(stream("S u1 a1 u2 a2", model="kimi-k3"), at=302 + 3600).read == 5000


@pytest.mark.parametrize(
    ("model", "tokens", "read"),
    [
        ("qwen3.8-max", 511, 0),
        ("qwen3.8-max", 512, 1024),
        ("glm-5.3", 10, 20),
        ("minimax-m3", 10, 20),
    ],
)
def test_automatic_caches_read_the_common_prefix_and_bill_no_write(
    model: str, tokens: int, read: int
) -> None:
    cache = simulator(rules_for(model, dialect="openai_chat"), model=model)
    cache.send(stream("S u1", model=model, tokens=tokens))
    tally = cache.send(stream("S u1 a1 u2", model=model, tokens=tokens))
    assert (tally.read, tally.uncached) == (read, 4 * tokens - read)
