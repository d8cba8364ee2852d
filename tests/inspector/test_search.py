"""Search to the place: what is found, where, and with which words around it."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.errors import BadInput
from lamina.inspector import Inspector
from lamina.inspector.request_views import show_request
from lamina.inspector.search import search_places
from lamina.inspector.segment_views import show_segment
from tests.conversations.recorded_talk import WORKSPACE, StoreAsker, write_long_talk
from tests.conversations.truth import open_inspector as open_recorded
from tests.inspector.recorded import make_reading_turns, open_inspector, write_agent_log, write_session


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    folder = tmp_path_factory.mktemp("sessions")
    session = write_session(folder, turns=2, extra=make_reading_turns(3))
    return open_inspector(session, write_agent_log(folder))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    ask = StoreAsker(tmp_path_factory.mktemp("store") / "store.db")
    ask(write_long_talk("anthropic").save)
    return open_recorded(ask, WORKSPACE)


def find(inspector: Inspector, text: str) -> list[dict[str, Any]]:
    places: list[dict[str, Any]] = search_places(inspector, text)["places"]
    return places


def test_a_place_is_the_first_request_that_has_the_words(logs: Inspector) -> None:
    (place,) = find(logs, "step_2_399")
    assert (place["words"], place["role"]) == ("step_2_399", "tool")
    assert place["before"].endswith("def")
    shown = show_request(logs, place["session"], place["request"])
    assert place["ref"] in {entry["ref"] for entry in shown["entries"]}
    earlier = show_request(logs, place["session"], place["request"] - 1)
    assert place["ref"] not in {entry["ref"] for entry in earlier["entries"]}


def test_words_and_phrases(logs: Inspector) -> None:
    assert find(logs, "PART_2 read")  # both words, in any order and case
    assert not find(logs, '"PART_2"')  # exactly so
    assert find(logs, '"Read part 2 and say"')
    assert not find(logs, '"part 2 Read"')
    with_word = find(logs, "part")
    without = find(logs, "part -400")
    assert 0 < len(without) < len(with_word)


def test_an_answer_that_no_request_has_is_found_with_its_request(logs: Inspector) -> None:
    place = next(place for place in find(logs, '"Part 2 has 400 steps."'))
    assert place["ref"] is None
    assert place["request"] == logs.sessions.get(place["session"]).summary.calls - 1


def test_what_a_cut_left_out_is_found_and_said_to_be_out_of_sight(recorded: Inspector) -> None:
    hidden = find(recorded, '"Parcel 8 stopped at office 801"')[0]
    assert not hidden["in_sight"]
    segment = show_segment(recorded, hidden["session"], hidden["request"], hidden["ref"])
    assert "Parcel 8 stopped at office 801" in segment["sent"]
    assert [change["form"] for change in segment["history"]] == ["FULL"]
    last = recorded.sessions.get(hidden["session"]).summary.calls - 1
    later = show_segment(recorded, hidden["session"], last, hidden["ref"])
    assert later["arrived"] == hidden["request"]
    assert [change["form"] for change in later["history"]][-1] == later["form"] != "FULL"


def test_a_search_for_nothing_is_refused(logs: Inspector) -> None:
    for text in ("", "   ", "-gone"):
        with pytest.raises(BadInput, match="nothing to look for"):
            find(logs, text)
