from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from lamina import (
    Budget,
    Envelope,
    Form,
    Layer,
    Ledger,
    Options,
    RequestHead,
    Role,
    Segment,
    build,
    explain,
    recall,
)
from lamina.core import RFC, Filter, Layout
from lamina.core.envelope import check_laws
from lamina.core.explanation import join_folds
from lamina.core.hashing import handle
from lamina.core.tokens import part_cost
from lamina.core.values import Calibration
from lamina.dialects import openai_chat
from lamina.errors import LawBroken
from lamina.segments import assistant, call, file, memory, result, system, user
from lamina.testing.laws import cases
from lamina.testing.strategies import Story, stories

TOOLS: tuple[dict[str, Any], ...] = ({"name": "read", "input_schema": {"type": "object"}},)
LOG = (
    system("Be brief."),
    file("spec.md", "# Spec\n\nOne table."),
    user("What does it say?", key="ask"),
    assistant("I look."),
    call("read", {"path": "spec.md"}, id="c1"),
    result("One table.", id="c1", name="read"),
    assistant("One table."),
    user("Thanks"),
)


def built(*log: Segment, tools: tuple[dict[str, Any], ...] = TOOLS, ledger: Ledger | None = None) -> Envelope:
    return build(log, head=RequestHead(tools=tools), counter=RFC, ledger=ledger or Ledger())


FIRST = built(*LOG)


# sums


def test_every_token_is_counted_once() -> None:
    framing = RFC.framing
    bodies = sum(part_cost(part, RFC) for e in FIRST.sent for part in e.parts)
    messages = framing.message * sum(e.opens for e in FIRST.sent)
    beside = framing.part * 3  # the two parts of the second assistant message, and the result
    assert FIRST.account.entries == bodies + messages + beside
    assert FIRST.account.margin == -(-FIRST.account.entries * 1050 // 1000) - FIRST.account.entries
    assert FIRST.tokens == FIRST.account.entries + FIRST.account.margin + FIRST.account.tools


@given(stories())
def test_the_rows_and_the_rest_sum_to_the_total(story: Story) -> None:
    for case in cases(story):
        manifest, account = explain(case.envelope), case.envelope.account
        assert sum(row.tokens for row in manifest.rows) == account.entries == sum(manifest.layers.values())
        assert manifest.tokens == account.entries + manifest.tools + manifest.request + manifest.margin
        assert manifest.tokens == case.envelope.tokens


def test_a_calibration_is_in_the_margin_and_ends_exactness() -> None:
    exact = msgspec.structs.replace(RFC, exact=True)
    ledger = Ledger(calibration=Calibration(millis=1500, samples=1))
    plain, scaled = (build(LOG, counter=exact, ledger=each).account for each in (Ledger(), ledger))
    assert (plain.exact, scaled.exact) == (True, False)
    assert scaled.entries == plain.entries
    assert scaled.total == -(-plain.entries * 1050 * 1500 // 1_000_000)


# explaining


def fitted() -> tuple[tuple[Segment, ...], Envelope]:
    log = [user("Read them all")]
    for n in range(8):
        log += [call("run", {"line": f"show {n}"}, id=f"c{n}"), result(f"{n} is long " * 80, id=f"c{n}")]
    log += [assistant("Done"), user("Thanks")]
    return tuple(log), build(log, counter=RFC, budget=Budget(window=1_500, reserve=0, keep_last=1))


def test_each_entry_is_a_row_with_its_reason_and_its_way_back() -> None:
    log, envelope = fitted()
    manifest = explain(envelope)
    assert [(r.ref, r.form, r.layer, r.why) for r in manifest.rows] == [
        (e.ref, e.form, e.layer, e.why) for e in envelope.entries
    ]
    assert all(row.why for row in manifest.rows)
    assert {row.form for row in manifest.rows} > {Form.FULL}
    for row, entry in zip(manifest.rows, envelope.entries, strict=True):
        assert bool(row.recall) == (entry.form is not Form.FULL)
        if row.recall:
            assert recall(log, row.recall) == (entry.segment,)


def test_a_cut_is_told_in_one_line() -> None:
    _, envelope = fitted()
    cut = envelope.cut
    assert cut is not None
    cut_row = f"cut 1: over the trigger, {cut.before:,} to {cut.after:,} tokens, {cut.lowered} lowered"
    assert cut_row in str(explain(envelope)).splitlines()


def test_the_table_has_a_line_for_each_row_and_fits_its_width() -> None:
    _, envelope = fitted()
    lines = str(explain(envelope)).splitlines()
    assert lines[0].split() == ["where", "form", "tokens", "what", "why"]
    rows = join_folds(explain(envelope).rows)
    assert len(rows) < len(envelope.entries), "what is folded shares the line of its digest"
    assert lines[1 + len(rows)] == ""
    assert max(map(len, lines[: len(rows) + 1])) <= 100
    sums = " ".join(lines[2 + len(rows) :])
    assert f"{envelope.tokens:,} of 1,500 tokens (estimated): " in sums


def test_the_table_of_nothing_says_so() -> None:
    assert str(explain(build(())))[-len("0 tokens (estimated): nothing") :] == "0 tokens (estimated): nothing"


def test_a_hostile_name_cannot_break_the_table() -> None:
    name = "a\nlayer  full  0\x1b[31m\u2028\r.md"
    envelope = build([file(name, "text " * 200), file(name, "text " * 200), user("Same?")])
    lines = str(explain(envelope))
    assert len(lines.splitlines()) == 1 + 3 + 2
    assert all(character.isprintable() or character == "\n" for character in lines)


# the last request, and what is recorded when it is not continued


def test_a_request_that_continues_the_last_one_records_no_cut() -> None:
    for more in ((), (assistant("Welcome"), user("Bye")), (memory("Likes tables"),)):
        assert built(*LOG, *more, ledger=FIRST.ledger).ledger.cuts == ()


@pytest.mark.parametrize(
    ("log", "tools", "reason"),
    [
        ((system("Be long."), *LOG[1:]), TOOLS, "system text changed"),
        (LOG[1:], TOOLS, "system text changed"),
        (LOG, (), "tools changed"),
        (LOG, (*TOOLS, {"name": "write"}), "tools changed"),
        ((*LOG[:2], user("What does it mean?"), *LOG[3:]), TOOLS, "history edited or rewound"),
        (LOG[:3], TOOLS, "history edited or rewound"),
        ((*LOG[:3], assistant("Nothing."), user("Hm")), TOOLS, "history edited or rewound"),
    ],
    ids=["system edited", "system gone", "no tools", "more tools", "edited", "rewound", "another branch"],
)
def test_what_was_sent_and_is_not_any_more_is_a_cut_with_its_reason(
    log: tuple[Segment, ...], tools: tuple[dict[str, Any], ...], reason: str
) -> None:
    after = built(*log, tools=tools, ledger=FIRST.ledger)
    assert after.cut is not None
    assert (after.cut.number, after.cut.reason, after.cut.lowered) == (1, reason, 0)
    assert after.ledger.cuts == (after.cut,)
    again = built(*log, tools=tools, ledger=after.ledger)
    assert (again.cut, again.ledger.cuts) == (None, (after.cut,)), "it is recorded once"


def test_parameters_are_no_part_of_the_stream() -> None:
    hot = build(
        LOG, head=RequestHead(tools=TOOLS, parameters={"temperature": 1}), counter=RFC, ledger=FIRST.ledger
    )
    assert (hot.cut, hot.prefix) == (None, FIRST.prefix)


# finding and hashing


def test_an_entry_is_found_by_key_ref_and_handle() -> None:
    entry = FIRST.entry("ask")
    assert entry is FIRST.entry(entry.ref) is FIRST.entry(handle(entry.content))
    for unknown in ("", "nothing"):
        with pytest.raises(KeyError):
            FIRST.entry(unknown)


def test_each_layer_ends_at_a_hash_and_the_last_one_is_the_whole() -> None:
    layers = FIRST.layers
    assert list(layers) == [Layer.SYSTEM, Layer.HISTORY, Layer.PROMPT]
    assert layers[Layer.PROMPT] == FIRST.prefix
    longer = built(*LOG, assistant("Welcome"), user("Bye"))
    assert longer.layers[Layer.SYSTEM] == layers[Layer.SYSTEM]
    assert longer.layers[Layer.HISTORY] != layers[Layer.HISTORY]


# the seal


def broken(envelope: Envelope, **changes: Any) -> Envelope:
    """The envelope with its last entry changed."""
    last = msgspec.structs.replace(envelope.entries[-1], **changes)
    return msgspec.structs.replace(envelope, entries=(*envelope.entries[:-1], last))


@pytest.mark.parametrize(
    ("envelope", "law"),
    [
        (msgspec.structs.replace(FIRST, room=FIRST.tokens - 1), "within the room"),
        (broken(FIRST, form=Form.OMITTED), "conservation"),
        (broken(FIRST, parts=()), "conservation"),
        (broken(FIRST, why=""), "conservation"),
        (broken(FIRST, role=Role.SYSTEM), "no authority is gained"),
        (broken(FIRST, layer=Layer.SYSTEM), "no authority is gained"),
    ],
)
def test_a_request_that_breaks_a_law_is_not_sealed(envelope: Envelope, law: str) -> None:
    check_laws(FIRST, 0)
    with pytest.raises(LawBroken) as caught:
        check_laws(envelope, 0)
    assert caught.value.law == law


def test_a_form_that_rises_is_not_sealed() -> None:
    _, envelope = fitted()
    low = next(i for i, e in enumerate(envelope.entries) if e.form is Form.STUB)
    raised = msgspec.structs.replace(envelope.entries[low], form=Form.FULL)
    entries = (*envelope.entries[:low], raised, *envelope.entries[low + 1 :])
    with pytest.raises(LawBroken, match="forms never rise"):
        check_laws(msgspec.structs.replace(envelope, entries=entries), 0)


def test_an_envelope_says_what_is_in_the_request_and_what_is_not() -> None:
    """002, "Building Context": messages for the model, included and excluded ids."""
    log = [system("Be brief."), user("One?"), assistant("1."), file("a.md", "Lamps."), user("Two?")]
    envelope = build(log, options=Options(layout=Layout(exclude=Filter(keys=frozenset({"a.md"})))))
    assert openai_chat.render(envelope)["messages"][-1] == {"role": "user", "content": "Two?"}
    assert [entry.segment.kind for entry in envelope.included] == ["system", "user", "assistant", "user"]
    assert [(entry.segment.key, bool(entry.why)) for entry in envelope.excluded] == [("a.md", True)]
