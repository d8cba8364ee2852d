"""The views of the inspector agree with `explain`, `diff` and the lab, for every request of a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.core.explanation import explain
from lamina.errors import BadInput
from lamina.inspector import (
    built_values,
    comparisons,
    exports,
    request_views,
    segment_views,
    views,
    visibility,
)
from lamina.inspector.building import build_call
from lamina.inspector.built_values import BuildSettings
from lamina.inspector.views import Inspector
from tests.inspector.recorded import open_inspector, write_session

NARROW = BuildSettings(policy="lamina", window=16_000)


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    return open_inspector(write_session(tmp_path_factory.mktemp("sessions")))


@pytest.fixture(scope="module")
def session_id(inspector: Inspector) -> str:
    return inspector.sessions.summaries()[0].id


def test_the_list_names_the_session(inspector: Inspector) -> None:
    row = views.show_sessions(inspector)["sessions"][0]
    assert row["model"] == "gpt-5"
    assert row["first_words"]
    assert row["calls"] > 20
    assert row["ended"] - row["began"] > 86_400


@pytest.mark.parametrize("settings", [BuildSettings(), NARROW])
def test_every_request_is_what_explain_says(
    inspector: Inspector, session_id: str, settings: BuildSettings
) -> None:
    built = inspector.built(session_id, settings)
    for call in built.calls[::5]:
        shown = request_views.show_request(inspector, session_id, call.number, settings)
        manifest = explain(build_call(built, call.number).envelope)
        assert [entry["tokens"] for entry in shown["entries"]] == [row.tokens for row in manifest.rows]
        assert [entry["why"] for entry in shown["entries"]] == [row.why for row in manifest.rows]
        assert call.tokens == manifest.tokens
        assert sum(shown["groups"]["kind"].values()) == sum(entry["tokens"] for entry in shown["entries"])


def test_a_request_built_again_is_the_request_of_the_walk(inspector: Inspector, session_id: str) -> None:
    """The strip walks through the session with memos; a request that is looked at is built without any."""
    built = inspector.built(session_id, NARROW)
    assert any(call.cut for call in built.calls)
    for call in built.calls:
        assert build_call(built, call.number).envelope.account.total == call.tokens


def test_what_is_left_out_keeps_its_former_size_and_its_reason(inspector: Inspector, session_id: str) -> None:
    last = len(inspector.built(session_id, NARROW).calls) - 1
    shown = request_views.show_request(inspector, session_id, last, NARROW)
    gone = [entry for entry in shown["entries"] if entry["form"] == "OMITTED" and not entry["own"]]
    assert gone
    assert all(entry["why"] for entry in gone)
    assert all(entry["full_tokens"] > 0 for entry in gone)


def test_a_segment_shows_its_original_and_its_history(inspector: Inspector, session_id: str) -> None:
    built = inspector.built(session_id, NARROW)
    last = len(built.calls) - 1
    shown = request_views.show_request(inspector, session_id, last, NARROW)
    gone = next(entry for entry in shown["entries"] if entry["form"] == "OMITTED" and not entry["own"])
    segment = segment_views.show_segment(inspector, session_id, last, gone["ref"], NARROW)
    assert segment["original"]
    assert segment["sent"] == ""
    assert segment["history"][0]["form"] == "FULL"
    assert segment["history"][-1]["form"] == "OMITTED"
    cut = built.calls[segment["history"][-1]["call"]]
    assert cut.cut
    assert segment["recall"]


def test_two_requests_around_a_cut_say_that_lamina_made_it(inspector: Inspector, session_id: str) -> None:
    built = inspector.built(session_id, NARROW)
    cut = next(call.number for call in built.calls if call.cut)
    answer = comparisons.compare_requests(inspector, session_id, cut - 1, cut, NARROW)
    assert answer["cause"] != "none"
    assert "cut" in answer["sentence"]
    continued = comparisons.compare_requests(inspector, session_id, cut, cut + 1, NARROW)
    assert continued["cause"] == "none"


def test_what_if_builds_the_session_under_another_window(inspector: Inspector, session_id: str) -> None:
    answer = comparisons.show_what_if(inspector, session_id, NARROW)
    assert answer["other"]["largest"] <= 16_000 < answer["recorded"]["largest"]
    assert answer["other"]["cuts"] == sum(bool(call["cut"]) for call in answer["calls"]) > 0
    assert answer["over_window"] > 0


def test_a_text_is_visible_until_the_cut_that_lowers_it(inspector: Inspector, session_id: str) -> None:
    built = inspector.built(session_id, NARROW)
    last = len(built.calls) - 1
    shown = request_views.show_request(inspector, session_id, last, NARROW)
    gone = next(e for e in shown["entries"] if e["form"] == "OMITTED" and e["kind"] == "tool_result")
    segment = segment_views.show_segment(inspector, session_id, last, gone["ref"], NARROW)
    text = max(segment["original"].split("\n"), key=len)
    answer = visibility.find_visible(inspector, session_id, text, NARROW)
    assert answer["states"][segment["arrived"]] in ("full", "part")
    for call in built.calls:
        text_of_request = str(exports.export_request(inspector, session_id, call.number, NARROW))
        if answer["states"][call.number] == "full":
            assert repr(text)[1:-1] in text_of_request or text in text_of_request


def test_unused_tools_are_listed_first(inspector: Inspector, session_id: str) -> None:
    tools = views.show_session(inspector, session_id, BuildSettings())["tools"]
    assert tools[0]["calls"] == 0
    assert "send_fax" in [tool["name"] for tool in tools if tool["calls"] == 0]


@pytest.mark.parametrize(
    "query",
    [{"window": "many"}, {"window": "-1"}, {"window": "9" * 5000}],
)
def test_settings_that_are_no_numbers_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        built_values.read_settings(query)


def test_a_file_that_grows_is_read_again(tmp_path: Path) -> None:
    path = write_session(tmp_path, turns=2)
    inspector = open_inspector(path)
    before = inspector.sessions.summaries()[0].calls
    state = inspector.sessions.state()
    write_session(tmp_path, turns=3)
    assert inspector.sessions.state() != state
    assert inspector.sessions.summaries()[0].calls > before
