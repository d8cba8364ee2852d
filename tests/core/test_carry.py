"""What cannot be said where a request goes enters lowered, with the reason, and can be recalled."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import Budget, Form, Ledger, Options, Role, Segment, build, recall, segments
from lamina.core import Image, Raw, Text, Thinking
from lamina.core.laws import LAWS, Case

WHY = "elsewhere has no words for it"
SIGNED = Segment(role=Role.ASSISTANT, kind="thinking", parts=(Thinking(text="hm " * 90, signature="s"),))
FOREIGN = Segment(
    role=Role.ASSISTANT, kind="assistant", parts=(Raw(dialect="x", data={"found": "w " * 200}),)
)
TINY = Segment(role=Role.ASSISTANT, kind="assistant", parts=(Raw(dialect="x", data={"t": 1}),))
PICTURE = Segment(
    role=Role.USER, kind="user", parts=(Image(data="A" * 4000, media_type="image/png"),), joins=True
)
LOG = (segments.user("look"), PICTURE, SIGNED, FOREIGN, TINY, segments.user("and now?"))


def carries(segment: Segment) -> str:
    return "" if isinstance(segment.parts[0], Text) else WHY


def built(log: tuple[Segment, ...] = LOG, **arguments: Any) -> Any:
    return build(log, options=Options(carries=carries), **arguments)


def test_what_cannot_be_said_is_a_stub_with_the_reason() -> None:
    entries = built().entries
    assert [(e.form, e.why) for e in entries[1:5]] == [
        (Form.STUB, WHY),
        (Form.OMITTED, WHY),
        (Form.STUB, WHY),
        (Form.OMITTED, WHY),
    ]
    assert "recall(" in entries[3].parts[0].text


def test_what_can_be_said_stays_as_it_is() -> None:
    entries = built().entries
    assert entries[0].form is entries[5].form is Form.FULL


def test_it_stays_lowered_when_the_request_goes_back_to_where_it_could_be_said() -> None:
    ledger = built().ledger
    again = build(LOG, ledger=Ledger.load(ledger.dump()))
    assert [e.form for e in again.entries] == [e.form for e in built().entries]


def test_it_comes_back_in_full_by_its_key() -> None:
    envelope = built()
    key = envelope.entries[3].parts[0].text.split('recall("')[1].split('"')[0]
    assert recall(LOG, key, ledger=envelope.ledger) == (FOREIGN,)


@pytest.mark.parametrize("budget", [None, Budget(window=4000, reserve=0)])
def test_the_laws_hold(budget: Budget | None) -> None:
    before = built(LOG[:4], budget=budget)
    after = built(budget=budget, ledger=before.ledger)
    case = Case(log=LOG, envelope=after, before=before)
    assert {name: list(law(case)) for name, law in LAWS.items()} == {name: [] for name in LAWS}
