"""What the inspector shows of a recorded conversation is what the upstream received."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from lamina.inspector import Inspector, request_views, views
from tests.conversations.recorded_talk import (
    MODELS,
    WORKSPACE,
    RecordedTalk,
    StoreAsker,
    choose_quick,
    write_long_talk,
)
from tests.conversations.truth import check_truth, open_inspector


@pytest.fixture
def ask(tmp_path: Path) -> StoreAsker:
    return StoreAsker(tmp_path / "conversations.db")


class SavedTalk(NamedTuple):
    """A long talk and the inspector of the store that it was recorded in."""

    talk: RecordedTalk
    ask: StoreAsker
    inspector: Inspector

    @property
    def session_id(self) -> str:
        return self.inspector.sessions.summaries()[0].id


@pytest.fixture(scope="module")
def saved_talks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], SavedTalk]:
    """The long talk in a dialect. It is written once, since nobody changes it."""

    @cache
    def write(dialect: str) -> SavedTalk:
        talk = write_long_talk(dialect)
        ask = StoreAsker(tmp_path_factory.mktemp("talks") / "conversations.db")
        ask(talk.save)
        return SavedTalk(talk, ask, open_inspector(ask, WORKSPACE))

    return write


@pytest.mark.parametrize("dialect", choose_quick("anthropic", "openai_responses"))
def test_the_inspector_shows_what_was_received(dialect: str, saved_talks: Callable[[str], SavedTalk]) -> None:
    talk, ask, _ = saved_talks(dialect)
    assert talk.cuts > 3
    check_truth(talk.received, ask, WORKSPACE)


@pytest.mark.parametrize("dialect", sorted(MODELS))
def test_reasons_are_told_for_every_request(dialect: str, saved_talks: Callable[[str], SavedTalk]) -> None:
    """Also after recalls, cuts and refusals. Nothing is fitted for it: the record has the reasons."""
    saved = saved_talks(dialect)
    talk, inspector, session_id = saved.talk, saved.inspector, saved.session_id
    for number in range(len(talk.received)):
        shown = request_views.show_request(inspector, session_id, number)
        assert not [entry for entry in shown["entries"] if "not kept" in entry["why"]]
        gone = [entry for entry in shown["entries"] if entry["form"] == "OMITTED" and not entry["own"]]
        assert all(entry["why"] and entry["full_tokens"] > 0 for entry in gone)


def test_a_body_that_lamina_cannot_explain_is_shown_as_it_was_sent(ask: StoreAsker) -> None:
    """Somebody else changed what left: its entries are those of the body, and what is missing is listed."""
    talk = RecordedTalk("anthropic")
    talk.say("The first question, about a parcel that was lost in the mountains.")
    talk.say(
        "The second question, about a stamp that nobody wanted to have.",
        changed=(b"that was lost in the mountains", b"that was found in the valley"),
    )
    ask(talk.save)
    inspector = open_inspector(ask, WORKSPACE)
    session_id = inspector.sessions.summaries()[0].id
    shown = request_views.show_request(inspector, session_id, 1)
    rows = {entry["preview"]: entry for entry in shown["entries"]}
    added = rows["The first question, about a parcel that was found in the valley."]
    assert (added["form"], added["why"]) == ("FULL", "it is not in the client's request")
    missing = rows["The first question, about a parcel that was lost in the mountains."]
    assert missing["form"] == "OMITTED"
    assert missing["why"].endswith("why is not kept")


def test_a_request_in_flight_says_so(saved_talks: Callable[[str], SavedTalk]) -> None:
    saved = saved_talks("openai_chat")
    inspector = saved.inspector
    session_id = saved.session_id
    strip = views.show_session(inspector, session_id)
    assert strip["calls"][-1]["is_open"]
    assert "in flight" in strip["calls"][-1]["refusal"]
    assert strip["totals"]["open"] == 1
    assert strip["totals"]["refused"] == 1
    assert strip["totals"]["dollars"] is not None


def test_retries_and_recalls_are_calls_of_their_own(saved_talks: Callable[[str], SavedTalk]) -> None:
    saved = saved_talks("anthropic")
    inspector = saved.inspector
    session_id = saved.session_id
    calls = views.show_session(inspector, session_id)["calls"]
    retried = [call for call in calls if call["why"]]
    assert [calls[call["follows"]]["status"] for call in retried] == [400]
    assert [calls[call["number"] + 1]["follows"] for call in calls if call["recalled"]] == [9, 17]


def test_a_store_without_texts_says_which_setting_has_them(ask: StoreAsker) -> None:
    talk = write_long_talk("openai_chat", keep="lowered")
    ask(talk.save)
    inspector = open_inspector(ask, WORKSPACE)
    session_id = inspector.sessions.summaries()[0].id
    strip = views.show_session(inspector, session_id)
    assert [call["reported"] for call in strip["calls"]] == [
        each.usage and each.usage.input for each in talk.received
    ]
    assert strip["totals"]["cuts"] == talk.cuts
    shown = request_views.show_request(inspector, session_id, 3)
    assert any('keep = "all"' in note for note in shown["notes"])
    assert shown["entries"] == []


def test_a_conversation_that_grows_is_read_again(ask: StoreAsker) -> None:
    talk = RecordedTalk("openai_chat")
    talk.say("The first question.")
    ask(talk.save)
    inspector = open_inspector(ask, WORKSPACE, pause=0.0)
    assert [summary.calls for summary in inspector.sessions.summaries()] == [1]
    talk.say("The second question.")
    ask(talk.save)
    summary = inspector.sessions.summaries()[0]
    assert summary.calls == 2
    strip = views.show_session(inspector, summary.id)
    assert len(strip["calls"]) == 2
