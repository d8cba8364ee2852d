"""Whatever a client sends: what leaves is valid or a typed error, and bytes that were sent stay as they were.

These are the laws of the wire, for every dialect and for requests that grow message by message: law 5 (each
request that leaves passes `check`), law 3 (without a recorded cut, the last stream is a prefix of the next),
law 1 (a memo changes nothing), law 11 (what is valid leaves as it came).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.values import Budget, Ledger
from lamina.dialects import DIALECTS
from lamina.dialects.port import CheckMemo, Violation
from lamina.errors import BadInput, BudgetExceeded, InvalidRequest, LaminaError
from lamina.request import Fitted, RequestMemo, fit_request
from tests.dialects.hostile import DIALECTS_WITH_MESSAGES, Hostile, conversations

EXPECTED = (BadInput, BudgetExceeded, InvalidRequest)
ROOM = Budget(window=8_000)

every_dialect = pytest.mark.parametrize("name", DIALECTS_WITH_MESSAGES)


def fit(
    request: dict[str, Any], name: str, ledger: Ledger | None, memo: RequestMemo | None = None
) -> Fitted | LaminaError:
    """A fitted request, or one of the three errors that may come instead."""
    try:
        return fit_request(request, dialect=name, budget=ROOM, ledger=ledger, memo=memo)
    except EXPECTED as error:
        return error


def rules(violations: list[Violation]) -> list[str]:
    return [f"{violation.rule} at {violation.place}" for violation in violations]


def blocks(name: str, request: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [(block.role, block.data) for block in DIALECTS[name].stream(request).blocks]


@every_dialect
@given(st.data())
def test_what_leaves_is_valid_continues_what_was_sent_and_owes_nothing_to_a_memo(
    name: str, data: st.DataObject
) -> None:
    hostile: Hostile = data.draw(conversations(name))
    memo, ledger, same = RequestMemo(), Ledger(), Ledger()
    before: list[tuple[str, bytes]] = []
    for count in range(1, len(hostile.messages) + 1):
        request = hostile.request(count)
        fitted, again = fit(request, name, ledger), fit(request, name, same, memo)
        if isinstance(fitted, LaminaError) or isinstance(again, LaminaError):
            assert str(fitted) == str(again)
            _says_where(fitted)
            continue
        assert json.dumps(fitted.request) == json.dumps(again.request)
        assert fitted.ledger == again.ledger
        assert fitted.envelope.notes == again.envelope.notes
        assert rules(DIALECTS[name].check(fitted.request)) == []
        after = blocks(name, fitted.request)
        if len(fitted.ledger.cuts) == len(ledger.cuts):
            assert after[: len(before)] == before
        ledger, same, before = fitted.ledger, again.ledger, after


def _says_where(error: Fitted | LaminaError) -> None:
    if isinstance(error, InvalidRequest):
        first = error.violations[0]
        assert first.rule in str(error)
        assert first.place in str(error)
        assert error.hint in str(error)


@every_dialect
@given(st.data())
def test_what_is_valid_leaves_as_it_came(name: str, data: st.DataObject) -> None:
    """A hostile request as it was mended is valid, so nobody changes it again."""
    request = data.draw(conversations(name, most=6)).request(6)
    if DIALECTS[name].check(request):
        mended = fit(request, name, None)
        if isinstance(mended, LaminaError):
            return
        assert mended.request is not request
        assert mended.envelope.notes
        request = mended.request
    fitted = fit(request, name, None)
    if isinstance(fitted, LaminaError):
        assert isinstance(fitted, BudgetExceeded)
    else:
        assert fitted.request is request
        assert fitted.envelope.notes == ()


@every_dialect
@given(st.data())
def test_a_growing_request_is_checked_at_its_end_as_it_is_as_a_whole(name: str, data: st.DataObject) -> None:
    """The memo's tail is longer than these conversations, so they are repeated until it resumes."""
    hostile: Hostile = data.draw(conversations(name, most=4))
    request, memo = hostile.request(4), CheckMemo()
    recheck = DIALECTS[name].recheck
    assert recheck is not None
    begins = _valid_beginning(name)
    for rounds in range(1, 9):
        items = begins * (6 * rounds)
        for grown in (items, [*items, *request[hostile.field]]):
            whole = {**request, hostile.field: grown}
            try:
                DIALECTS[name].parse(whole)
            except BadInput:
                return
            assert rules(recheck(whole, memo)) == rules(DIALECTS[name].check(whole))


def _valid_beginning(name: str) -> list[dict[str, Any]]:
    if name == "gemini":
        return [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"text": "hi"}]}]
    return [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hi"}]
