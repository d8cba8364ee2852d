from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core import RFC, Layout
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.hashing import canonical_json
from lamina.core.options import Options
from lamina.core.values import Budget, RequestHead, Segment
from lamina.diagnose import Difference, diff
from lamina.segments import assistant, call, file, result, system, user
from lamina.testing.strategies import logs

HOISTED = Options(layout=Layout(library="hoisted"))
TOOLS: tuple[dict[str, Any], ...] = (
    {"name": "read", "description": "Reads a file", "input_schema": {"type": "object"}},
    {"name": "write", "description": "Writes a file", "input_schema": {"type": "object"}},
)
LOG = (
    system("Be brief."),
    file("spec.md", "# Spec\n\n" + "The importer reads one table. " * 40),
    user("What does it say?", key="u1"),
    assistant("It reads one table."),
    user("And then?"),
    assistant("Nothing else."),
)


def built(
    *log: Segment, tools: tuple[dict[str, Any], ...] = TOOLS, options: Options | None = None
) -> Envelope:
    return build(log, head=RequestHead(tools=tools), counter=RFC, options=options or Options())


def at(position: int, replacement: Segment) -> tuple[Segment, ...]:
    """The log with one segment replaced."""
    return (*LOG[:position], replacement, *LOG[position + 1 :])


def first_difference(one: bytes, other: bytes) -> int:
    differ = (i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y)
    return next(differ, min(len(one), len(other)))


BEFORE = built(*LOG)


# causes


def test_a_request_that_continues_has_no_cause_and_loses_nothing() -> None:
    after = built(*LOG, user("Thanks"))
    difference = diff(BEFORE, after)
    assert (difference.cause, difference.at, difference.entry) == ("none", len(LOG), after.sent[-1].ref)
    assert (difference.kept, difference.lost, difference.was, difference.byte) == (BEFORE.tokens, 0, "", 0)
    assert difference.continues


def test_the_same_request_has_no_new_entry() -> None:
    difference = diff(BEFORE, built(*LOG))
    assert (difference.cause, difference.at, difference.entry, difference.kept) == (
        "none",
        len(LOG),
        "",
        BEFORE.tokens,
    )


@pytest.mark.parametrize(
    ("tools", "cause"),
    [
        ((TOOLS[0] | {"description": "Reads one"}, TOOLS[1]), "tools changed"),
        (({"name": "list"}, *TOOLS), "tool added"),
        ((), "tool removed"),
        (TOOLS[::-1], "tools reordered"),
    ],
)
def test_tools_stand_first_so_nothing_is_kept(tools: tuple[dict[str, Any], ...], cause: str) -> None:
    difference = diff(BEFORE, built(*LOG, tools=tools))
    assert (difference.cause, difference.at, difference.kept, difference.lost) == (cause, 0, 0, BEFORE.tokens)
    assert difference.byte == (
        first_difference(canonical_json(TOOLS[0]), canonical_json(tools[0])) if tools else 0
    )


def test_a_tool_at_the_end_leaves_those_before_it() -> None:
    difference = diff(BEFORE, built(*LOG, tools=(*TOOLS, {"name": "list"})))
    assert (difference.cause, difference.at, difference.entry) == ("tool added", 0, "tools[2]")
    assert difference.offset == len(canonical_json(TOOLS[0])) + len(canonical_json(TOOLS[1]))


def test_another_tenant_shares_no_prefix() -> None:
    difference = diff(BEFORE, built(*LOG, options=Options(salt="another")))
    assert (difference.cause, difference.lost) == ("tenant changed", BEFORE.tokens)


EDITS = {
    "system changed": at(0, system("Be very brief.")),
    "attachment changed": at(1, file("spec.md", "# Spec\n\nIt reads two tables.")),
    "edited": at(2, user("What does it mean?", key="u1")),
    "reordered": (*LOG[:3], *reversed(LOG[3:])),
    "inserted": (*LOG[:4], user("Hold on"), *LOG[4:]),
    "rewound": LOG[:3],
}


@pytest.mark.parametrize("cause", EDITS)
def test_what_the_application_did_is_named(cause: str) -> None:
    after = built(*EDITS[cause])
    difference = diff(BEFORE, after)
    place = next((i for i, s in enumerate(EDITS[cause]) if s != LOG[i]), len(EDITS[cause]))
    assert (difference.cause, difference.at) == (cause, place)
    assert difference.was == BEFORE.sent[place].ref
    assert difference.entry == (after.sent[place].ref if cause != "rewound" else "")
    assert difference.kept == BEFORE.account.tools + sum(e.tokens for e in BEFORE.sent[:place])
    assert not difference.continues


@pytest.mark.parametrize(
    ("edited", "cause"), [(at(4, user("And why?")), "edited"), ((*LOG[:3], *LOG[4:]), "removed")]
)
def test_a_message_without_a_key_that_is_gone(edited: tuple[Segment, ...], cause: str) -> None:
    assert diff(BEFORE, built(*edited)).cause == cause


def long_session() -> tuple[Segment, ...]:
    log = [user("Read them all")]
    for number in range(6):
        log += [call("read", {"path": f"{number}.txt"}, id=f"c{number}")]
        log += [result(f"{number}: " + "many words " * 100, id=f"c{number}")]
    return (*log, assistant("Done"), user("Thanks"))


def test_a_cut_is_named_and_what_came_before_its_first_edit_is_kept() -> None:
    log, budget = long_session(), Budget(window=2_000, reserve=0, keep_last=1)
    before = build(log[:-2], counter=RFC)
    after = build(log, counter=RFC, budget=budget, ledger=before.ledger)
    assert after.cut is not None
    difference = diff(before, after)
    assert (difference.cause, difference.was) == ("cut", after.cut.first)
    assert difference.kept == sum(e.tokens for e in before.sent[: difference.at])


def test_what_the_ledger_lowered_earlier_is_not_called_a_new_cut() -> None:
    log = long_session()
    fitted = build(log, counter=RFC, budget=Budget(window=2_000, reserve=0, keep_last=1))
    after = build(log, counter=RFC, ledger=fitted.ledger)
    assert after.cut is None
    assert diff(build(log, counter=RFC), after).cause == "lowered"


def test_an_attachment_that_moves_into_the_library_is_named() -> None:
    before = built(*LOG[:3], options=HOISTED)
    after = built(*LOG[:5], options=HOISTED)
    assert diff(before, after).cause == "library changed"


# where


@given(st.text(), st.text(), st.text())
def test_the_byte_is_the_first_that_differs(start: str, one: str, other: str) -> None:
    texts = [f"?{start}{end}" for end in (one, other)]
    before, after = (built(*at(2, user(text, key="u1"))) for text in texts)
    wires = [canonical_json(e.sent[2].parts) for e in (before, after)]
    assert diff(before, after).byte == (first_difference(*wires) if one != other else 0)


@given(logs(), st.integers(0, 99), st.sampled_from(["replace", "remove", "insert", "keep"]))
def test_what_is_kept_and_what_is_lost_add_up(log: tuple[Segment, ...], place: int, what: str) -> None:
    i = place % len(log)
    new = {
        "replace": (user("another"),),
        "remove": (),
        "insert": (user("another"), log[i]),
        "keep": (log[i],),
    }
    before, after = (build(each, counter=RFC) for each in (log, (*log[:i], *new[what], *log[i + 1 :])))
    difference = diff(before, after)
    old = [(e.sent, e.opens) for e in before.lasting]
    now = [(e.sent, e.opens) for e in after.sent]
    same = next(
        (n for n, (x, y) in enumerate(zip(old, now, strict=False)) if x != y), min(len(old), len(now))
    )
    assert difference.at == same
    assert difference.continues == (same == len(old))
    passing = sum(e.tokens for e in before.sent[len(old) :])
    assert difference.kept + difference.lost == before.tokens - passing
    if not difference.continues:
        assert difference.kept == before.account.request + sum(e.tokens for e in before.sent[:same])


def test_a_difference_is_plain_json() -> None:
    difference = diff(BEFORE, built(*EDITS["edited"]))
    assert msgspec.convert(msgspec.to_builtins(difference), Difference) == difference
