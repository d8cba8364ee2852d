"""The views of the inspector agree with `explain`, `diff` and the lab, for every request of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lamina.cli.inspect import DemoSource
from lamina.core.explanation import explain
from lamina.inspector import Inspector, Sessions, request_views, views
from tests.inspector.recorded import open_inspector, write_session

CALL = {"id": "x1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
INTERRUPTED: list[dict[str, Any]] = [
    {"role": "user", "content": "Read it."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "user", "content": "No: wait."},
    {"role": "assistant", "content": "I wait."},
    {"role": "tool", "tool_call_id": "of no call", "content": "an orphan"},
    {"role": "assistant", "content": "I still wait."},
    {"role": "user", "content": "Go on."},
    {"role": "assistant", "content": "Going."},
]
"""What has to be repaired: a call without a result, and a result without a call."""


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    return open_inspector(write_session(tmp_path_factory.mktemp("sessions"), extra=INTERRUPTED))


@pytest.fixture(scope="module")
def session_id(inspector: Inspector) -> str:
    return inspector.sessions.summaries()[0].id


def test_the_list_names_the_session(inspector: Inspector) -> None:
    row = views.show_sessions(inspector)["sessions"][0]
    assert row["model"] == "gpt-5"
    assert row["first_words"]
    assert row["calls"] > 20
    assert row["ended"] - row["began"] > 86_400


def test_every_request_is_what_explain_says(inspector: Inspector, session_id: str) -> None:
    opened = inspector.open(session_id)
    for call in (*opened.calls[:-3:5], *opened.calls[-3:]):
        shown = request_views.show_request(inspector, session_id, call.number)
        manifest = explain(views.read_envelope(inspector.read(opened, call.number)))
        assert [entry["tokens"] for entry in shown["entries"]] == [row.tokens for row in manifest.rows]
        assert [entry["why"] for entry in shown["entries"]] == [row.why for row in manifest.rows]
        assert (call.tokens, shown["sent"]) == (manifest.tokens, len(manifest.rows))


def test_a_file_that_grows_is_read_again(tmp_path: Path) -> None:
    path = write_session(tmp_path, turns=2)
    inspector = open_inspector(path)
    before = inspector.sessions.summaries()[0].calls
    state = inspector.sessions.state()
    write_session(tmp_path, turns=3)
    assert inspector.sessions.state() != state
    assert inspector.sessions.summaries()[0].calls > before


def test_a_session_opens_at_its_most_expensive_event(inspector: Inspector, session_id: str) -> None:
    """Its cache was lost after a day: nothing else cost so much."""
    shown = views.show_session(inspector, session_id)
    call = shown["calls"][shown["totals"]["opens_at"]]
    assert call["loss"]["by"] == "expiry"
    assert call["dollars"] == max(each["dollars"] for each in shown["calls"])


def test_a_request_is_named_by_the_first_tool_call_of_its_answer(
    inspector: Inspector, session_id: str
) -> None:
    calls = views.show_session(inspector, session_id)["calls"]
    assert calls[0]["calls"] == "read_file src/old_courier.py"
    answer = request_views.show_request(inspector, session_id, 0)["answer"]
    assert [part["name"] for part in answer["parts"] if part["sort"] == "call"] == ["read_file"]


def test_what_if_has_the_rows_of_lamina_run(inspector: Inspector, session_id: str) -> None:
    shown = views.show_alternatives(inspector, session_id)
    dollars = views.show_session(inspector, session_id)["totals"]["dollars"]
    rows = shown["saving"]["rows"]
    assert [row["flag"] for row in rows][:2] == ["--window model", "--prefer memory"]
    assert rows[0]["dollars"] == pytest.approx(dollars)
    assert shown["paid"] is None  # it did not run under lamina


def test_the_demo_says_what_it_saved() -> None:
    """The dashed line is what the client wrote, and the sum without lamina is that of its account."""
    inspector = Inspector(Sessions(sources=[DemoSource(7)]))
    demo_id = max(inspector.sessions.summaries(), key=lambda summary: summary.calls).id
    shown = views.show_session(inspector, demo_id)
    totals = shown["totals"]
    measured = [call for call in shown["calls"] if call["whole"] is not None]
    assert all(call["whole"] >= call["tokens"] for call in measured)
    first_cut = next(call["number"] for call in shown["calls"] if call["cut"])
    assert all(call["whole"] == call["tokens"] for call in measured if call["number"] < first_cut)
    assert totals["without"] > totals["dollars"]
    assert f"${totals['without']:.4f}" in totals["without_words"]
    last = request_views.show_request(inspector, demo_id, totals["opens_at"])
    reasons = {entry["why"] for entry in last["entries"] if entry["form"] == "OMITTED"}
    assert "in the digest of cut 1" in reasons
    assert not any("fold-" in reason for reason in reasons)
