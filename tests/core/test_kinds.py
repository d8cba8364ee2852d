from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from lamina import BadInput, Layer, Policy, Role, Segment, fit_request
from lamina.core import HIGH, KINDS, LOW, Filter, Kind, Layout, Wording
from lamina.core.kinds import ESSENTIAL, MEDIUM, REFERENCE_TAGS, Retention, kind_of, priority, recoverable
from lamina.core.options import Options
from lamina.segments import file, segment, selected_text, user

TICKET = Kind(tag="ticket", role=Role.USER, layer=Layer.TURN, attributes=("number",), attachment=True)


def test_each_tag_is_a_plain_word_and_belongs_to_one_kind() -> None:
    tags = Counter([kind.tag for kind in KINDS.values()] + list(REFERENCE_TAGS))
    assert [tag for tag, count in tags.items() if count > 1 or not re.fullmatch(r"[a-z][a-z_]*", tag)] == []


def test_the_id_of_a_tagged_segment_is_no_attribute_of_a_kind() -> None:
    assert [name for name, kind in KINDS.items() if "id" in kind.attributes] == []
    assert [name for name, kind in KINDS.items() if len(set(kind.attributes)) < len(kind.attributes)] == []


@pytest.mark.parametrize("name", KINDS)
def test_a_row_agrees_with_itself(name: str) -> None:
    kind = KINDS[name]
    assert (kind.role is Role.SYSTEM) == (kind.layer is Layer.SYSTEM)
    assert not (kind.attachment and kind.section)
    assert kind.attachment == (kind.layer is Layer.TURN)
    assert kind.attachment or not kind.nested
    if kind.section or kind.role is Role.SYSTEM:
        assert (kind.retention, kind.priority, kind.recoverable) == (Retention.CRITICAL, ESSENTIAL, False)


def test_what_only_the_user_knows_cannot_be_recovered() -> None:
    lost = {name for name, kind in KINDS.items() if not kind.recoverable and kind.role is Role.USER}
    assert lost == {"user", "parent_message", "user_intervention", "selected_text", "web_selected_text"}


def test_sections_stand_by_their_stability() -> None:
    sections = sorted((kind.stability, name) for name, kind in KINDS.items() if kind.section)
    assert [name for _, name in sections] == ["persona", "project", "memory"]


def test_priorities_rise_with_what_goes_first() -> None:
    assert ESSENTIAL < HIGH < MEDIUM < LOW
    assert (priority(KINDS, file("a", "x")), priority(KINDS, file("a", "x", priority=LOW))) == (MEDIUM, LOW)
    assert priority(KINDS, file("a", "x", priority=ESSENTIAL)) == ESSENTIAL


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (file("a", "x"), True),
        (file("a", "x", recover=""), False),
        (selected_text("x"), False),
        (selected_text("x", recover="in the clipboard"), True),
        (user("x"), False),
    ],
)
def test_a_segment_may_say_itself_how_it_recovers(given: Segment, expected: bool) -> None:  # noqa: FBT001
    assert recoverable(KINDS, given) is expected


def test_the_table_is_extended_by_a_copy() -> None:
    assert kind_of({**KINDS, "ticket": TICKET}, segment("ticket", Role.USER, "x")) is TICKET
    assert "ticket" not in KINDS
    with pytest.raises(TypeError):
        KINDS["ticket"] = TICKET  # type: ignore[index]


def test_an_unknown_kind_is_refused_with_what_is_known() -> None:
    with pytest.raises(BadInput) as raised:
        kind_of(KINDS, segment("ticket", Role.USER, "x", key="t1"))
    assert raised.value.problem == "unknown kind 'ticket'"
    assert raised.value.place == "segment 't1'"
    assert "web_tab" in raised.value.hint
    assert "{**KINDS, 'ticket': Kind(...)}" in raised.value.hint


@pytest.mark.parametrize(
    ("chosen", "place"),
    [
        ({"wording": Wording(words={"fle": lambda *_: None})}, "words"),
        ({"layout": Layout(include=Filter(kinds=frozenset({"user", "fle"})))}, "include"),
        ({"layout": Layout(exclude=Filter(kinds=frozenset({"fle"})))}, "exclude"),
        ({"layout": Layout(prior_limits={"fle": 100})}, "prior_limits"),
    ],
)
def test_a_kind_that_there_is_not_is_refused_with_the_nearest(chosen: dict[str, Any], place: str) -> None:
    with pytest.raises(BadInput, match="there is no kind 'fle'; the nearest is 'file'") as refused:
        Options(**chosen)
    assert refused.value.place == place
    Options(**chosen, kinds={**KINDS, "fle": KINDS["file"]})


def test_a_policy_with_words_for_no_kind_is_refused_at_the_door() -> None:
    policy = Policy(wording=Wording(words={"fle": lambda *_: None}))
    request = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi."}]}
    with pytest.raises(BadInput, match="the nearest is 'file'"):
        fit_request(request, policy=policy)
