"""Where and why two requests of a provider part, under no rules and under those of a cache."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.caches import CacheRules, Stream, StreamBlock, rules_for, simulator
from lamina.caches.stream import SETTINGS
from lamina.core.tokens import STRICT
from lamina.diagnose import CAUSES, Difference, diff
from lamina.diagnose.text_changes import describe_volatile, name_section, same_spelling
from lamina.diagnose.values import SETTING_CAUSES
from lamina.dialects import DIALECTS
from lamina.errors import BadInput
from lamina.fitting import fit_request
from tests.caches.streams import stream

MARK = {"cache_control": {"type": "ephemeral"}}
LONG = "The importer reads one table after the other. " * 120
REQUEST: dict[str, Any] = {
    "model": "claude-opus-5",
    "max_tokens": 100,
    "system": [{"type": "text", "text": f"# Role\n\nBe brief.\n\n# Project\n\n{LONG}", **MARK}],
    "messages": [
        {"role": "user", "content": "What does it read?"},
        {"role": "assistant", "content": "One table."},
        {"role": "user", "content": [{"type": "text", "text": "And then?", **MARK}]},
    ],
}
CLAUDE = rules_for("anthropic")


def grown(**fields: Any) -> dict[str, Any]:
    """The request one turn later."""
    request = deepcopy({**REQUEST, **fields})
    more = [("assistant", "Another one."), ("user", "Thanks.")]
    request["messages"] += [
        {"role": role, "content": [{"type": "text", "text": text}]} for role, text in more
    ]
    request["messages"][-1]["content"][0] |= MARK
    return request


def in_system(old: str, new: str) -> dict[str, Any]:
    text = REQUEST["system"][0]["text"]
    assert old in text
    return grown(system=[{"type": "text", "text": text.replace(old, new), **MARK}])


# what is said


def test_a_difference_says_where_why_how_much_and_what_to_do() -> None:
    difference = diff(REQUEST, in_system("reads one", "writes one"))
    assert (difference.cause, difference.was, difference.entry, difference.at) == (
        "system changed",
        "system[0]",
        "system[0]",
        0,
    )
    assert difference.sentence.startswith("the system text changed: ")
    assert difference.sentence.endswith("under 'Project'")
    assert "writes" in difference.sentence
    assert difference.advice == CAUSES["system changed"].advice
    assert (
        difference.byte
        == difference.offset
        == len(b'{"text":"# Role\\n\\nBe brief.\\n\\n# Project\\n\\nThe importer ')
    )
    assert difference.kept + difference.lost == diff(REQUEST, REQUEST).kept


def test_the_offset_counts_from_the_first_tool() -> None:
    tool = {"name": "read", "input_schema": {"type": "object"}}
    difference = diff({**REQUEST, "tools": [tool]}, {**in_system("brief", "quick"), "tools": [tool]})
    size = len(DIALECTS["anthropic"].cache.stream({**REQUEST, "tools": [tool]}).blocks[0].data)
    assert (difference.at, difference.offset) == (0, size + difference.byte)


def test_nothing_is_lost_by_a_request_that_goes_on() -> None:
    difference = diff(REQUEST, grown())
    assert (difference.cause, difference.lost, difference.entry) == ("none", 0, "messages[3].content[0]")
    assert difference.continues


def test_a_counter_and_reported_tokens_are_used() -> None:
    counted = diff(REQUEST, grown(), counter=STRICT)
    assert counted.kept > len(LONG)
    reported = diff(REQUEST, in_system("brief", "quick"), tokens=7_777)
    assert reported.kept + reported.lost == 7_777


def test_every_cause_has_a_sentence_and_advice() -> None:
    assert set(SETTING_CAUSES) == set(SETTINGS)
    assert set(SETTING_CAUSES.values()) <= set(CAUSES)
    assert all(words.sentence and (words.advice or cause == "none") for cause, words in CAUSES.items())


def test_a_difference_of_requests_is_plain_json() -> None:
    difference = diff(REQUEST, in_system("brief", "quick"), rules=CLAUDE)
    assert msgspec.convert(msgspec.to_builtins(difference), Difference) == difference


# what may be compared


def test_fitted_requests_are_compared_by_their_envelopes() -> None:
    one = fit_request(REQUEST)
    assert diff(one, fit_request(grown(), ledger=one.ledger)).continues
    assert diff(one.envelope, fit_request(in_system("brief", "quick"))).cause == "system changed"


@pytest.mark.parametrize(("thoughts", "detail"), [(1, "1 block"), (2, "2 blocks")])
def test_dropped_thinking_is_named_where_later_answers_repeat_it(thoughts: int, detail: str) -> None:
    thinking = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}] * thoughts
    answer = {"role": "assistant", "content": [*thinking, {"type": "text", "text": "OK"}]}
    question = {"role": "user", "content": "Go on."}
    without_thinking = {"role": "assistant", "content": [{"type": "text", "text": "OK"}]}
    before = {**REQUEST, "messages": [question, answer, question, answer, question]}
    after = {**REQUEST, "messages": [question, without_thinking, question, answer, question]}
    difference = diff(before, after)
    assert difference.cause == "thinking dropped"
    assert difference.sentence.endswith(f": {detail}")


def test_streams_of_any_dialect_are_compared() -> None:
    block = StreamBlock(
        sort="text", role="user", data=b'{"text":"a"}', place="contents[0]", opens=True, tokens=5
    )
    before = Stream(
        dialect="other", model="m", blocks=(block, msgspec.structs.replace(block, data=b'{"text":"b"}'))
    )
    after = msgspec.structs.replace(before, blocks=before.blocks[:1])
    difference = diff(before, after)
    assert (difference.cause, difference.kept, difference.lost) == ("rewound", 5, 5)
    assert diff(before, msgspec.structs.replace(before, cached="c1")).cause == "cached content changed"


@pytest.mark.parametrize("value", [None, 3, SimpleNamespace(envelope=None)])
def test_what_cannot_be_compared_is_refused(value: Any) -> None:
    with pytest.raises(BadInput, match="cannot compare"):
        diff(value, REQUEST)
    with pytest.raises(BadInput, match="unknown dialect 'x'"):
        diff(REQUEST, REQUEST, dialect="x")


# under rules


def test_a_setting_matters_only_where_the_rules_say_so() -> None:
    other = grown(output_config={"effort": "low"})
    plain = diff(REQUEST, other)
    assert (plain.cause, plain.settings) == ("none", ("effort",))
    difference = diff(REQUEST, other, rules=CLAUDE)
    assert (difference.cause, difference.was, difference.settings) == (
        "effort changed",
        "messages[0].content[0]",
        ("effort",),
    )
    assert diff(REQUEST, other, rules=rules_for("unknown")).cause == "none"


def test_what_is_kept_is_what_the_simulated_cache_reads() -> None:
    edited = grown()
    edited["messages"][1]["content"] = "Two tables."
    before, after = (_weighed(request) for request in (REQUEST, edited))
    difference = diff(before, after, rules=CLAUDE)
    assert (difference.cause, difference.was) == ("edited", "messages[1].content[0]")
    assert difference.kept == before.blocks[0].tokens, "the system text is marked, the first message is not"
    assert difference.lost == before.tokens - difference.kept
    assert difference.price is not None
    assert difference.price > 0


@pytest.mark.parametrize(
    ("model", "dialect", "kept", "lost", "expires", "dollars"),
    [
        ("deepseek-flash", "openai_chat", 0, 8_000, False, 0.30 - 0.006),  # whole units, at a busy hour
        ("kimi-k3", "openai_chat", 3_000, 5_000, True, 3.00 - 0.30),
        ("qwen3.8-max", "openai_chat", 3_000, 5_000, False, 2.00 - 0.40),
        ("qwen3.8-max", "anthropic", 2_000, 6_000, True, 2.50 - 0.20),
        ("minimax-m3", "openai_chat", 3_000, 5_000, False, 0.30 - 0.06),
        ("minimax-m3", "anthropic", 2_000, 6_000, True, 0.375 - 0.06),
        ("glm-5.3", "openai_chat", 3_000, 5_000, False, 1.40 - 0.26),
        ("gpt-6.1-sol", "openai_responses", 2_000, 6_000, False, 5.00 - 0.10),  # markers of 12 hours
    ],
)
def test_what_an_edit_costs_at_each_provider(
    model: str, dialect: str, kept: int, lost: int, *, expires: bool, dollars: float
) -> None:
    """Blocks of 2,000 tokens; the edited one begins as before, with 1,000 of them."""
    rules = rules_for(model, dialect=dialect)
    mark = {"breakpoints": "@5m", "tail": "@12h"}.get(rules.match, "")
    before, edited, longer = (
        stream(words.replace("+", mark), model=model, tokens=2_000)
        for words in ("S+ u1 a1 u2+", "S+ u9 a1 u2+", "S+ u1 a1 u2 a2 u3+")
    )
    difference = diff(before, edited, rules=rules)
    assert (difference.cause, difference.kept, difference.lost) == ("edited", kept, lost)
    assert difference.price == pytest.approx(lost * dollars / 1e6)
    assert diff(before, longer, rules=rules).continues
    assert diff(before, longer, rules=rules, gap=301).cause == ("expired" if expires else "none")


@pytest.mark.parametrize(("gap", "cause"), [(0.0, "none"), (299.0, "none"), (301.0, "expired")])
def test_a_cache_lives_as_long_as_its_markers_say(gap: float, cause: str) -> None:
    assert diff(REQUEST, grown(), rules=CLAUDE, gap=gap).cause == cause


def test_a_longer_marker_keeps_its_part() -> None:
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    system = [{**REQUEST["system"][0], **hour}]
    difference = diff({**REQUEST, "system": system}, grown(system=system), rules=CLAUDE, gap=600)
    assert (difference.cause, difference.was) == ("expired", "messages[0].content[0]")
    assert 0 < difference.kept < difference.kept + difference.lost


def test_what_was_never_cached_cannot_be_lost_by_an_edit() -> None:
    plain = {**REQUEST, "system": LONG, "messages": [{"role": "user", "content": "Hi"}]}
    assert diff(plain, {**plain, "system": "Other."}, rules=CLAUDE).cause == "no breakpoint"


def test_a_model_that_strips_thinking_is_named() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    call = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "A line.", **MARK}
    messages = [
        REQUEST["messages"][0],
        {"role": "assistant", "content": [thought, call]},
        {"role": "user", "content": [result]},
    ]
    before = {**REQUEST, "model": "claude-sonnet-4-5", "messages": messages}
    after = deepcopy(before)
    after["messages"] += [
        {"role": "assistant", "content": "One."},
        {"role": "user", "content": [{"type": "text", "text": "And?", **MARK}]},
    ]
    assert diff(before, after, rules=CLAUDE).cause == "thinking stripped"
    newer = [{**request, "model": "claude-opus-5"} for request in (before, after)]
    assert diff(*newer, rules=CLAUDE).cause == "none"


def test_rules_of_ones_own_are_used() -> None:
    own = CacheRules(
        name="own",
        title="Own",
        as_of="2026-01-01",
        sources=(),
        match="prefix",
        levels={"effort": "all"},
        minimum=1,
    )
    difference = diff(REQUEST, grown(output_config={"effort": "low"}), rules=own)
    assert (difference.cause, difference.kept) == ("effort changed", 0)


CHANGES = st.sampled_from(["none", "system", "first", "last", "effort", "markers", "model"])


@given(st.lists(CHANGES, max_size=3), st.sampled_from([0.0, 200.0, 400.0]))
def test_what_the_simulated_cache_reads_is_kept_and_the_rest_has_a_cause(
    changes: list[str], gap: float
) -> None:
    after = grown()
    for change in changes:
        if change == "system":
            after["system"][0]["text"] += " More."
        elif change in ("first", "last"):
            after["messages"][0 if change == "first" else 2]["content"] = "Other?"
        elif change == "effort":
            after["output_config"] = {"effort": "low"}
        elif change == "markers":
            after["messages"][-1]["content"] = "Thanks."
        elif change == "model":
            after["model"] = "claude-opus-5-5"
    old, new = _weighed(REQUEST), _weighed(after)
    difference = diff(old, new, rules=CLAUDE, gap=gap)
    cache = simulator(CLAUDE)
    first = cache.send(old, at=0.0)
    read = cache.send(new, at=gap).read
    assert difference.kept == read
    assert difference.continues == (read >= first.written)


def _weighed(request: dict[str, Any]) -> Stream:
    stream = DIALECTS["anthropic"].cache.stream(request)
    return stream.weighed(len(block.data) for block in stream.blocks)


# what texts look like

VOLATILE = [
    ("at 2026-11-15T10:00:00Z.", "at 2026-11-15T10:00:01Z.", "a time"),
    ("at 10:59 pm", "at 11:01 pm", "a time"),
    ("on 2026-11-15", "on 2026-12-01", "a date"),
    ("on 15/11/2026", "on 16/11/2026", "a date"),
    ("Sunday, 15 November 2026", "Monday, 16 November 2026", "a date"),
    ("November 15, 2026", "December 1, 2026", "a date"),
    ("today is Sunday", "today is Monday", "a day"),
    ("ts 1794700747", "ts 1794700748", "a time in seconds"),
    ("ts 1794700747123", "ts 1794700748001", "a time in seconds"),
    ("id 3f0c1d52-9b1e-4c7a-8f63-0a2b9d7e1c44", "id b7e0a911-27d3-4e0f-9a55-6d1f0c3b8e72", "a UUID"),
    ("req_01HXK2M9", "req_77ZQP4T1", "a random id"),
    ("You have 812 tokens left", "You have 790 tokens left", "an amount"),
    ("Used: 40 % so far", "Used: 41 % so far", ""),
    ("This is turn 9.", "This is turn 10.", "a count"),
]
STEADY = [
    ("Be brief.", "Be quick."),
    ("At most 20 requests a minute", "At most 30 requests a minute"),
    ("Use Python 3.11", "Use Python 3.12"),
    ("section 4", "section 5"),
    ("The table is called orders", "The table is called invoices"),
    ("", "a"),
]


@pytest.mark.parametrize(("one", "other", "kind"), VOLATILE)
def test_text_that_differs_at_every_call_is_recognised(one: str, other: str, kind: str) -> None:
    causes = [
        describe_volatile(*(f"{start}{text}{end}".encode() for text in (one, other))) for start, end in AROUND
    ]
    assert all(each.startswith(kind) and each for each in causes), causes


AROUND = [
    ("", ""),
    ('{"text":"Some words.\\n', '\\nMore words.","type":"text"}'),
    ("x" * 99 + " ", " y" * 99),
]


@pytest.mark.parametrize(("one", "other"), STEADY)
def test_other_text_is_not_called_volatile(one: str, other: str) -> None:
    assert not describe_volatile(f'{{"text":"{one}"}}'.encode(), f'{{"text":"{other}"}}'.encode())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("I \u2764\ufe0f it", "I \u2764 it", True),  # the sign that asks for a picture
        ("co\u00adoperate", "cooperate", True),
        ("a \u200eb", "a b", True),
        ("a b", "a  b\r\n", True),
        ("caf\u00e9", "cafe\u0301", True),
        ("a", "\ufeffa", True),
        ('{"a": 1, "b": "caf\u00e9"}', '{"b":"caf\\u00e9","a":1}', True),
        ("a", "b", False),
        ('{"a": 1}', '{"a": 2}', False),
        ("cafe", "caf\u00e9", False),
    ],
)
def test_spelling_is_told_from_meaning(one: str, other: str, same: bool) -> None:  # noqa: FBT001
    assert same_spelling(*(msgspec.json.encode({"text": text}) for text in (one, other))) == same


@pytest.mark.parametrize(
    "text",
    ["[trimmed]", '[shortened: a.py · 9 bytes · recall("k0123456789ab")]', '<digest covers="3">x</digest>'],
)
def test_what_lamina_lowered_is_called_a_cut(text: str) -> None:
    lowered = grown()
    lowered["messages"][1]["content"] = text
    assert diff(REQUEST, lowered).cause == "cut"
    assert diff(lowered, grown()).cause == "edited"


def test_hostile_text_is_compared_in_one_pass() -> None:
    marks = "a" + "\u0301\u0323" * 20_000
    one, other = (msgspec.json.encode({"text": marks + end}) for end in ("x", "y"))
    assert not same_spelling(one, other)
    assert not describe_volatile(one, other)
    deep = b'{"text":' + b"[" * 900 + b"]" * 900 + b"}"
    assert not same_spelling(deep, b'{"text":1}')


def test_a_section_is_named_by_its_heading_or_tag() -> None:
    data = b'{"text":"# One\\n\\na\\n\\n## Two\\n\\nb\\n\\n<memory>\\nc"}'
    assert [name_section(data, data.index(sign)) for sign in (b"a", b"b\\n", b'c"')] == [
        "One",
        "Two",
        "memory",
    ]
    assert not name_section(b'{"text":"plain"}', 12)
