"""What a reader saves of a session: the page holds it, spans are spans, and what is redacted is gone."""

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
from lamina.inspector.one_file import save_session
from lamina.inspector.pages import Access, answer_request
from lamina.inspector.redaction import Redaction
from lamina.inspector.views import Inspector
from tests.conversations.recorded_talk import WORKSPACE, StoreAsker, write_long_talk
from tests.conversations.truth import open_inspector as open_store
from tests.inspector.recorded import open_inspector, write_session

SECRET = "hunter2-7741"  # noqa: S105 - nobody's password


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


def save(inspector: Inspector, **words: str) -> str:
    session_id = inspector.sessions.summaries()[0].id
    return save_session(inspector, session_id, words).body.decode()


def test_a_page_holds_what_was_said_and_a_redacted_one_does_not(inspector: Inspector) -> None:
    whole = save(inspector)
    assert SECRET in whole
    redacted = save(inspector, redact="1")
    assert SECRET not in redacted
    assert "read_file" in redacted, "names stay"
    assert re.search(r"\[text [0-9a-f]{8}, [\d,]+ characters\]", redacted)


@pytest.mark.parametrize(
    "dialect", ["anthropic", pytest.param("openai_responses", marks=pytest.mark.thorough)]
)
def test_recorded_conversations_are_redacted(dialect: str, recorded: Callable[[str], Inspector]) -> None:
    inspector = recorded(dialect)
    whole = save(inspector)
    redacted = save(inspector, redact="1")
    trace = inspector.sessions.get(inspector.sessions.summaries()[0].id).conversation
    texts = [str(message["content"]) for message in trace.messages if len(str(message["content"])) > 40]
    assert texts
    shown = [text for text in texts if text.splitlines()[0][:40] in whole]
    assert shown
    for text in texts:
        assert text.splitlines()[0][:40] not in redacted


def test_a_span_has_its_requests_and_no_others(inspector: Inspector) -> None:
    text = save(inspector, **{"from": "2", "to": "3"})
    session_id = inspector.sessions.summaries()[0].id
    data = json.loads(text.split('id="lamina-data">')[1].split("</script>")[0])
    assert [call["number"] for call in data[f"/api/session/{session_id}"]["calls"]] == [2, 3]
    assert data[f"/api/session/{session_id}"]["totals"]["calls"] == 2


def test_a_page_of_one_session_holds_no_other(tmp_path: Path) -> None:
    write_session(tmp_path, seed=7, turns=1)
    write_session(tmp_path, seed=8, turns=1)
    inspector = open_inspector(tmp_path)
    first, second = [summary.id for summary in inspector.sessions.summaries()]
    page = save_session(inspector, first, {}).body.decode()
    assert f"/api/session/{first}" in page
    assert second not in page


def test_files_are_saved_under_a_name_of_their_own(inspector: Inspector) -> None:
    session_id = inspector.sessions.summaries()[0].id
    access = Access(hosts=frozenset(["127.0.0.1:1"]))
    headers = {"host": "127.0.0.1:1"}
    answer = answer_request(inspector, "GET", f"/api/save/{session_id}", headers, access)
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == f'attachment; filename="session-{session_id}.html"'
    assert answer_request(inspector, "GET", "/api/save/none", headers, access).status == 400


@pytest.mark.parametrize("words", [{"from": "99"}, {"from": "x"}, {"from": "3", "to": "1"}])
def test_a_span_that_is_none_is_bad_input(words: dict[str, str], inspector: Inspector) -> None:
    with pytest.raises(BadInput):
        save(inspector, **words)


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
    redacted = redaction.redact_view(value)
    assert leaves(redacted) == [redaction.mark(text) for text in leaves(value)]
    assert redaction.redact_view(value) == redacted


def test_two_redactions_have_different_marks() -> None:
    assert Redaction().mark("yes") != Redaction().mark("yes")
