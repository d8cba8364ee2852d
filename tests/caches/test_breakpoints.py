from __future__ import annotations

import msgspec
import pytest

from lamina.caches import Cache, Tally, rules_for, simulator
from tests.caches.streams import stream

RULES = rules_for("anthropic")


@pytest.fixture
def cache() -> Cache:
    return simulator(RULES)


def taken(tally: Tally) -> tuple[int, int, int, int]:
    return tally.read, tally.written, tally.written_long, tally.uncached


def test_a_marker_writes_what_is_before_it_and_the_next_request_reads_it(cache: Cache) -> None:
    assert taken(cache.send(stream("T S u1@5m u2"))) == (0, 3000, 0, 1000)
    assert taken(cache.send(stream("T S u1 a1 u2@5m"), at=1)) == (3000, 2000, 0, 0)


def test_nothing_is_read_where_no_marker_stood(cache: Cache) -> None:
    cache.send(stream("S u1 u2 u3@5m"))
    tally = cache.send(stream("S u1 u2 u4@5m"))
    assert tally.read == 0
    assert tally.why == "no live entry at a marker or boundary, or within its look-back"


def test_without_a_marker_nothing_is_cached(cache: Cache) -> None:
    cache.send(stream("S u1"))
    assert cache.send(stream("S u1")) == Tally(uncached=2000, why="no marker")


@pytest.mark.parametrize(("new", "read"), [(19, 1000), (20, 0)])
def test_twenty_positions_are_searched_the_marker_among_them(cache: Cache, new: int, read: int) -> None:
    cache.send(stream("u0@5m"), at=0)
    words = " ".join(["u0", *(f"{'au'[n % 2]}{n}" for n in range(new))])
    assert cache.send(stream(words + "@5m"), at=1).read == read


def test_a_run_of_calls_or_of_results_is_one_position(cache: Cache) -> None:
    cache.send(stream("u0@5m"))
    calls = " ".join(f"c{n}" for n in range(30))
    results = " ".join(f"r{n}" for n in range(30))
    assert cache.send(stream(f"u0 {calls} {results}@5m")).read == 1000
    bedrock = simulator(rules_for("bedrock"))
    bedrock.send(stream("u0@5m"))
    assert bedrock.send(stream(f"u0 {calls} {results}@5m")).read == 0


def test_an_earlier_marker_is_searched_from_too(cache: Cache) -> None:
    cache.send(stream("T S@5m u1"))
    words = " ".join(f"{'ua'[n % 2]}{n}" for n in range(60))
    assert taken(cache.send(stream(f"T S@5m {words}@5m"))) == (2000, 60_000, 0, 0)


@pytest.mark.parametrize(("later", "read"), [(300, 1000), (301, 0)])
def test_an_entry_lives_five_minutes(cache: Cache, later: float, read: int) -> None:
    cache.send(stream("u1@5m"), at=10)
    assert cache.send(stream("u1@5m"), at=10 + later).read == read


def test_a_read_begins_the_lifetime_anew(cache: Cache) -> None:
    cache.send(stream("u1@5m"), at=0)
    for at in (200, 400, 600):
        assert cache.send(stream("u1@5m a1 u2"), at=at).read == 1000


def test_an_entry_for_an_hour_is_written_at_its_own_price_and_outlives_the_short_one(cache: Cache) -> None:
    assert taken(cache.send(stream("S@1h u1 a1 u2@5m u3"), at=0)) == (0, 3000, 1000, 1000)
    assert taken(cache.send(stream("S@1h u1 a1 u2@5m u3"), at=1800)) == (1000, 3000, 0, 1000)


def test_what_is_below_the_minimum_is_neither_written_nor_read(cache: Cache) -> None:
    small = stream("u1@5m", tokens=511)
    cache.send(small)
    tally = cache.send(small)
    assert taken(tally) == (0, 0, 0, 511)
    assert tally.why == "what could be cached is below the minimum of 512 tokens"
    assert RULES.least("claude-opus-4-5-20251101") == 4096


def test_parallel_requests_write_each_for_itself_until_an_answer_has_begun(cache: Cache) -> None:
    assert cache.send(stream("S@5m u1"), at=0, begun=3).written == 1000
    assert cache.send(stream("S@5m u2"), at=1, begun=4).written == 1000
    assert cache.send(stream("S@5m u3"), at=3).read == 1000


@pytest.mark.parametrize("refresh", [True, False])
def test_an_entry_is_readable_once_the_first_answer_of_those_that_wrote_it_begins(refresh: bool) -> None:  # noqa: FBT001
    cache = simulator(msgspec.structs.replace(RULES, refresh=refresh))
    cache.send(stream("S@5m u1"), at=0, begun=9)
    cache.send(stream("S@5m u2"), at=1, begun=2)
    assert cache.send(stream("S@5m u3"), at=1.5, begun=2).read == 0
    assert cache.send(stream("S@5m u4"), at=2).read == 1000


def test_the_marker_of_the_whole_request_stands_on_its_last_block(cache: Cache) -> None:
    assert taken(cache.send(stream("S u1", automatic="5m"))) == (0, 2000, 0, 0)
    assert taken(cache.send(stream("S u1 a1 u2", automatic="5m"))) == (2000, 2000, 0, 0)
    assert cache.send(stream("S u1 t1", automatic="5m")).read == 2000


def test_of_more_markers_than_allowed_the_latest_count(cache: Cache) -> None:
    cache.send(stream("u1@5m a1@5m u2@5m a2@5m u3@5m"))
    assert cache.send(stream("u1@5m a9")).read == 0


@pytest.mark.parametrize(
    ("setting", "read"), [("format", 0), ("speed", 1000), ("tool_choice", 2000), ("verbosity", 3000)]
)
def test_a_changed_setting_spares_what_stands_before_its_level(cache: Cache, setting: str, read: int) -> None:
    cache.send(stream("T@5m S@5m u1@5m"))
    assert cache.send(stream("T@5m S@5m u1@5m", settings={setting: b"1"})).read == read


def test_another_model_shares_nothing(cache: Cache) -> None:
    cache.send(stream("u1@5m"))
    assert cache.send(stream("u1@5m", model="claude-opus-5-5")).read == 0


def test_older_models_drop_thinking_when_the_user_speaks_again(cache: Cache) -> None:
    for model, read in (("claude-opus-4-1", 5000), ("claude-sonnet-4-5", 5000), ("claude-opus-4-6", 25_000)):
        cache.send(stream("u1@5m t1 c1 r1 a1@5m", model=model, tokens=5000))
        assert cache.send(stream("u1 t1 c1 r1 a1 u2@5m", model=model, tokens=5000)).read == read


def test_they_keep_it_while_tools_answer(cache: Cache) -> None:
    cache.send(stream("u1 t1 c1 r1@5m", model="claude-opus-4-1"))
    assert cache.send(stream("u1 t1 c1 r1 t2 c2 r2@5m", model="claude-opus-4-1")).read == 4000


@pytest.mark.parametrize("model", ["qwen3.8-max", "minimax-m3"])
def test_providers_that_speak_anthropics_api_take_its_markers(model: str) -> None:
    cache = simulator(rules_for(model, dialect="anthropic"), model=model)
    words = " ".join(f"u{n}" for n in range(20))
    assert taken(cache.send(stream("S@5m u0@5m", model=model, tokens=600))) == (0, 1200, 0, 0)
    within = cache.send(stream(f"S {words}@5m", model=model, tokens=600))
    assert taken(within) == (1200, 19 * 600, 0, 0)
    beyond = cache.send(stream(f"S u0 {words.replace('u', 'a')}@5m", model=model, tokens=600))
    assert beyond.read == 0
    assert cache.send(stream("S@5m u0@5m", model=model, tokens=600), at=301).read == 0


def test_qwen_caches_nothing_below_its_minimum() -> None:
    cache = simulator(rules_for("qwen3.8-max", dialect="anthropic"))
    assert taken(cache.send(stream("u1@5m", model="qwen3.8-max", tokens=1023))) == (0, 0, 0, 1023)
    assert taken(cache.send(stream("u1@5m", model="qwen3.8-max", tokens=1024))) == (0, 1024, 0, 0)
