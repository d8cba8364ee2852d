"""A name stands once in the library, and once among the attachments of a turn."""

from __future__ import annotations

import msgspec
import pytest

from lamina import Budget, Form, Layer, Options, Segment, build
from lamina.core import Layout, audit
from lamina.core.laws import Case
from lamina.errors import LawBroken
from lamina.segments import assistant, note, system, user

LOG = (note("a.md", "same"), note("b.md", "other"), user("q"))


@pytest.mark.parametrize("library", ["in_place", "hoisted"])
@pytest.mark.parametrize("context", ["before", "after", "logged"])
def test_a_name_that_comes_twice_in_a_turn_stands_once(library: str, context: str) -> None:
    layout = msgspec.convert({"library": library, "context": context}, Layout)
    log = (note("a.md", "old " * 40), note("a.md", "new " * 40), user("q"))
    options = Options(layout=layout)
    envelope = build(log, options=options)
    keys = [e.segment.key for e in envelope.sent if e.layer is Layer.TURN and e.form is Form.FULL]
    assert keys == ["a.md"]
    audit(Case(log=log, envelope=envelope, options=options))


@pytest.mark.parametrize("layer", [Layer.TURN, Layer.LIBRARY])
def test_the_audit_finds_a_name_that_stands_twice_in_a_layer(layer: Layer) -> None:
    options = Options(layout=Layout(library="hoisted"))
    log = LOG if layer is Layer.TURN else (*LOG, assistant("a"), user("q2"))
    envelope = build(log, options=options)
    entries = list(envelope.entries)
    audit(Case(log=log, envelope=envelope, options=options))
    first, second = (i for i, e in enumerate(entries) if e.layer is layer and e.segment.kind == "note")
    renamed = msgspec.structs.replace(entries[second].segment, key=entries[first].segment.key)
    entries[second] = msgspec.structs.replace(entries[second], segment=renamed)
    broken = msgspec.structs.replace(envelope, entries=tuple(entries))
    with pytest.raises(LawBroken, match=r"a\.md stands twice"):
        audit(Case(log=log, envelope=broken, options=options))


def test_the_audit_finds_layers_out_of_order() -> None:
    options = Options(layout=Layout(library="hoisted"))
    envelope = build((*LOG, assistant("a"), user("q2")), options=options)
    audit(envelope)  # it is what an application has
    entries = sorted(envelope.entries, key=lambda entry: entry.layer is Layer.LIBRARY)
    with pytest.raises(LawBroken, match="of the library stands after"):
        audit(msgspec.structs.replace(envelope, entries=tuple(entries)))


def test_what_came_with_an_earlier_question_of_the_turn_stays() -> None:
    """The answer between the questions was empty, so both are in one turn; the first was sent already."""
    log: tuple[Segment, ...] = (note("a.md", "old " * 40), user("q1"), assistant(""))
    first = build(log)
    log += (note("a.md", "new " * 40), user("q2"))
    second = build(log, ledger=first.ledger)
    attachments = [entry for entry in second.sent if entry.segment.key == "a.md"]
    assert [(entry.layer, entry.form) for entry in attachments] == [(Layer.TURN, Form.FULL)] * 2
    audit(Case(log=log, envelope=second, before=first))


def test_equal_content_may_come_again_where_the_first_was_shortened() -> None:
    budget = Budget(window=672, reserve=0)
    content = "# Title\n\n" + "line of text\n" * 200
    log: tuple[Segment, ...] = (note("a.md", content),)
    first = build(log, budget=budget)
    log += (note("a.md", content), user("q"))
    second = build(log, budget=budget, ledger=first.ledger)
    audit(Case(log=log, envelope=second, before=first))


def test_what_came_before_a_reminder_keeps_its_bytes_when_its_name_comes_again() -> None:
    """The request before may have ended with the reminder. Then the older text is in a cache."""
    begun = (system("Be brief."), note("a.md", "old text"), system("Reminder: be brief."))
    grown = (*begun, note("a.md", "new text"), user("What changed?"))
    first = build(begun)
    second = build(grown, ledger=first.ledger)
    assert second.cut is None
    assert [entry.parts for entry in second.sent][: len(first.sent)] == [entry.parts for entry in first.sent]
    audit(Case(log=grown, envelope=second, before=first))


def test_what_came_before_an_empty_answer_keeps_its_bytes_when_its_name_comes_again() -> None:
    """The empty answer is not sent. But it answered a request, which had the older text."""
    options = Options(layout=Layout(context="after"))
    begun = (user("Read it."), note("a.md", "old text"))
    grown = (*begun, assistant(""), note("a.md", "new text"))
    first = build(begun, options=options)
    second = build(grown, ledger=first.ledger, options=options)
    assert second.cut is None
    audit(Case(log=grown, envelope=second, before=first, options=options))
