"""What a reader saves of a session: each format holds it, spans are spans, and what is redacted is gone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import BadInput
from lamina.inspector import Inspector
from lamina.inspector.exports import save_session
from lamina.inspector.pages import Access, answer_request
from lamina.inspector.redaction import Redaction
from lamina.inspector.views import show_session
from tests.conversations.recorded_talk import WORKSPACE, RecordedTalk, StoreAsker, write_long_talk
from tests.conversations.truth import open_inspector as open_store
from tests.inspector.recorded import open_inspector, write_session

SECRET = "hunter2-7741"  # noqa: S105 - nobody's password
FORMATS = ("html", "har", "json")


def secret_turns() -> list[dict[str, Any]]:
    """A secret in every place that a session has for text, and a fence that tries to end its block."""
    function = {"name": "read_file", "arguments": json.dumps({"path": f"{SECRET}/a.py", SECRET: 1})}
    call = {"id": "s1", "type": "function", "function": function}
    return [
        {"role": "user", "content": f"The password is {SECRET}.\n```\n# Not a heading"},
        {"role": "assistant", "content": f"I use {SECRET}.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "s1", "content": f"{SECRET} in a result"},
        {"role": "assistant", "content": f"Done with {SECRET}."},
    ]


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    return open_inspector(write_session(tmp_path_factory.mktemp("s"), turns=2, extra=secret_turns()))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Inspector]:
    @cache
    def write(dialect: str) -> Inspector:
        ask = StoreAsker(tmp_path_factory.mktemp("talks") / "store.db")
        ask(write_long_talk(dialect).save)
        return open_store(ask, WORKSPACE)

    return write


def save(inspector: Inspector, format_name: str, **words: str) -> str:
    session_id = inspector.sessions.summaries()[0].id
    return save_session(inspector, session_id, format_name, words).body.decode()


def count_requests(inspector: Inspector) -> int:
    return len(show_session(inspector, inspector.sessions.summaries()[0].id)["calls"])


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_holds_what_was_said_and_a_redacted_one_does_not(
    format_name: str, inspector: Inspector
) -> None:
    whole = save(inspector, format_name)
    assert SECRET in whole
    redacted = save(inspector, format_name, redact="1")
    assert SECRET not in redacted
    assert "read_file" in redacted, "names stay"
    assert re.search(r"\[text [0-9a-f]{8}, [\d,]+ characters\]", redacted)


@pytest.mark.parametrize(
    ("dialect", "format_name"),
    [
        ("anthropic", "html"),
        ("openai_responses", "har"),
        *(
            pytest.param(name, "har", marks=pytest.mark.thorough)
            for name in ("anthropic", "openai_chat", "gemini")
        ),
    ],
)
def test_recorded_conversations_of_every_api_are_redacted(
    dialect: str, format_name: str, recorded: Callable[[str], Inspector]
) -> None:
    inspector = recorded(dialect)
    whole = save(inspector, format_name)
    redacted = save(inspector, format_name, redact="1")
    trace = inspector.sessions.get(inspector.sessions.summaries()[0].id).conversation
    texts = [str(message["content"]) for message in trace.messages if len(str(message["content"])) > 40]
    assert texts
    shown = [text for text in texts if text.splitlines()[0][:40] in whole]
    assert shown
    for text in texts:
        assert text.splitlines()[0][:40] not in redacted


def test_a_har_file_has_what_version_1_2_asks_for(recorded: Callable[[str], Inspector]) -> None:
    inspector = recorded("anthropic")
    log = json.loads(save(inspector, "har"))["log"]
    assert log["version"] == "1.2"
    assert {"name", "version"} <= log["creator"].keys()
    assert len(log["entries"]) == count_requests(inspector)
    for entry in log["entries"]:
        assert {"startedDateTime", "time", "request", "response", "cache", "timings"} <= entry.keys()
        request = entry["request"]
        assert {"method", "url", "httpVersion", "cookies", "headers", "queryString"} <= request.keys()
        assert {"headersSize", "bodySize", "postData"} <= request.keys()
        assert json.loads(request["postData"]["text"])["messages"]
        response = entry["response"]
        assert {"status", "statusText", "httpVersion", "cookies", "headers", "content"} <= response.keys()
        assert {"redirectURL", "headersSize", "bodySize"} <= response.keys()
        assert {"send", "wait", "receive"} <= entry["timings"].keys()
    answered = [entry for entry in log["entries"] if entry["response"]["content"]["text"]]
    assert answered
    assert {entry["response"]["status"] for entry in answered} >= {200}


def test_a_har_file_has_the_bytes_that_were_sent(tmp_path: Path) -> None:
    talk = RecordedTalk("anthropic")
    talk.say("Where is parcel 4?", changed=(b'"model":', b'"model" :  '))
    ask = StoreAsker(tmp_path / "store.db")
    ask(talk.save)
    inspector = open_store(ask, WORKSPACE)
    sent = inspector.sessions.get(inspector.sessions.summaries()[0].id).sent
    assert sent is not None
    (entry,) = json.loads(save(inspector, "har"))["log"]["entries"]
    assert entry["request"]["postData"]["text"].encode() == sent.record.sent_body(sent.calls[0])
    assert '"model" :  ' in entry["request"]["postData"]["text"]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_span_has_its_requests_and_no_others(format_name: str, inspector: Inspector) -> None:
    text = save(inspector, format_name, **{"from": "2", "to": "3"})
    if format_name == "har":
        assert len(json.loads(text)["log"]["entries"]) == 2
    elif format_name == "json":
        value = json.loads(text)
        assert [each["number"] for each in value["requests"]] == [2, 3]
        assert value["totals"]["calls"] == 2
    else:
        session_id = inspector.sessions.summaries()[0].id
        data = json.loads(text.split('id="lamina-data">')[1].split("</script>")[0])
        assert [call["number"] for call in data[f"/api/session/{session_id}"]["calls"]] == [2, 3]
        assert data[f"/api/session/{session_id}"]["totals"]["calls"] == 2


def test_a_page_of_one_session_holds_no_other(tmp_path: Path) -> None:
    write_session(tmp_path, seed=7, turns=1)
    write_session(tmp_path, seed=8, turns=1)
    inspector = open_inspector(tmp_path)
    first, second = [summary.id for summary in inspector.sessions.summaries()]
    page = save_session(inspector, first, "html", {}).body.decode()
    assert f"/api/session/{first}" in page
    assert second not in page


def test_files_are_saved_under_a_name_of_their_own(inspector: Inspector) -> None:
    session_id = inspector.sessions.summaries()[0].id
    access = Access(hosts=frozenset(["127.0.0.1:1"]))
    for name in FORMATS:
        path = f"/api/save/{session_id}/{name}"
        answer = answer_request(inspector, "GET", path, {"host": "127.0.0.1:1"}, access)
        assert answer.status == 200
        assert answer.headers["Content-Disposition"] == f'attachment; filename="session-{session_id}.{name}"'
    refused = answer_request(inspector, "GET", f"/api/save/{session_id}/exe", {"host": "127.0.0.1:1"}, access)
    assert (refused.status, b"use one of html, har, json" in refused.body) == (400, True)


@pytest.mark.parametrize("words", [{"from": "99"}, {"from": "x"}, {"from": "3", "to": "1"}])
def test_a_span_that_is_none_is_bad_input(words: dict[str, str], inspector: Inspector) -> None:
    with pytest.raises(BadInput):
        save(inspector, "json", **words)


FIELDS = st.sampled_from(["text", "content", "input", "new"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=12,
)


def leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in leaves(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in leaves(inner)]
    return [value] if isinstance(value, str) and value.strip() else []


@given(JSON)
def test_every_text_becomes_a_mark_and_equal_texts_equal_marks(value: Any) -> None:
    redaction = Redaction()
    for redact in (redaction.redact_view, redaction.redact_body):
        redacted = redact(value)
        assert leaves(redacted) == [redaction.mark(text) for text in leaves(value)]
        assert redact(value) == redacted


def test_two_redactions_have_different_marks() -> None:
    assert Redaction().mark("yes") != Redaction().mark("yes")
