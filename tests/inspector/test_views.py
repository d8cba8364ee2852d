"""The views of the inspector agree with `explain`, `diff` and the lab, for every request of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lamina.core.explanation import explain
from lamina.inspector import (
    Inspector,
    request_views,
    views,
)
from lamina.inspector.building import build_call
from lamina.inspector.built_values import turn_of
from lamina.replay import ReplayOptions
from lamina.replay.runs import replay_trace
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
    """The strip measures all requests in one build; a request that is looked at is built by itself."""
    built = inspector.built(session_id)
    for call in (*built.calls[:-3:5], *built.calls[-3:]):
        shown = request_views.show_request(inspector, session_id, call.number)
        envelope = build_call(built, call.number).envelope
        manifest = explain(envelope)
        assert [entry["tokens"] for entry in shown["entries"]] == [row.tokens for row in manifest.rows]
        assert [entry["why"] for entry in shown["entries"]] == [row.why for row in manifest.rows]
        assert (call.tokens, call.entries) == (manifest.tokens, len(manifest.rows))
        layers = {layer.value: tokens for layer, tokens in manifest.layers.items()}
        assert call.layers == pytest.approx(layers, abs=len(manifest.rows) / 2)  # each entry is rounded
        assert call.turn == turn_of(envelope.entries, len(envelope.entries))
        assert sum(shown["groups"]["kind"].values()) == sum(entry["tokens"] for entry in shown["entries"])


@pytest.mark.parametrize("rules", ["anthropic", "openai", "openai_legacy", "vllm"])
def test_under_other_rules_a_cache_reads_about_what_the_lab_says(
    rules: str, inspector: Inspector, session_id: str
) -> None:
    """The strip takes a request for the last one and more; the lab simulates the cache block by block.

    The strip has the reported sizes, and the lab counts.
    """
    trace = inspector.sessions.get(session_id).conversation.trace
    options = ReplayOptions(policies=("none",), windows=(400_000,), rules=(rules,), model="gpt-5")
    [outcome] = replay_trace(trace, options).outcomes
    calls = inspector.built(session_id, rules).calls
    assert all(call.simulated for call in calls)
    share = sum(call.tokens for call in calls) / outcome.sent
    assert sum(call.read for call in calls) == pytest.approx(share * outcome.read, rel=0.06)
    paid = sum(call.written + call.uncached for call in calls)
    assert paid == pytest.approx(share * (outcome.written + outcome.uncached), rel=0.25)
    assert any(call.written for call in calls) == (outcome.written > 0)


def test_unused_tools_are_listed_first(inspector: Inspector, session_id: str) -> None:
    tools = views.show_session(inspector, session_id)["tools"]
    assert tools[0]["calls"] == 0
    assert "send_fax" in [tool["name"] for tool in tools if tool["calls"] == 0]


def test_a_file_that_grows_is_read_again(tmp_path: Path) -> None:
    path = write_session(tmp_path, turns=2)
    inspector = open_inspector(path)
    before = inspector.sessions.summaries()[0].calls
    state = inspector.sessions.state()
    write_session(tmp_path, turns=3)
    assert inspector.sessions.state() != state
    assert inspector.sessions.summaries()[0].calls > before
