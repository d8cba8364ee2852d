"""A client's log and lamina's record of the same session are one, and sub-agents find their parent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio

from lamina.conversations.record import Answered, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.store import ConversationState, conversation_place
from lamina.costs.logs.values import make_id
from lamina.dialects import Usage
from lamina.inspector.recorded_sessions import ListedSession, SessionSummary
from lamina.inspector.sessions import join_sessions
from lamina.stores import open_store
from tests.cli.running import run
from tests.inspector.recorded import write_agent_log

SESSION = "claude-code:5f0c"


def summary(name: str, calls: int = 3, began: float = 0.0, **fields: Any) -> SessionSummary:
    values: dict[str, Any] = {
        "source": "claude-code",
        "place": name,
        "first_words": "",
        "model": "m",
        "tokens": None,
        "dollars": None,
        "lost_caches": 0,
        "ended": None,
    }
    return SessionSummary(id=make_id(name), name=name, calls=calls, began=began, **{**values, **fields})


def unread() -> Any:
    raise AssertionError("the list needs no session in full")


def recorded(name: str, **fields: Any) -> ListedSession:
    return ListedSession(summary=summary(name, **fields), load=unread)


def logged(name: str, **fields: Any) -> ListedSession:
    return ListedSession(summary=summary(name, **fields), load=unread, is_log=True)


def join(sessions: Iterable[ListedSession]) -> dict[str, SessionSummary]:
    joined = join_sessions({session.summary.id: session for session in sessions})
    return {session.summary.name: session.summary for session in joined.values()}


def test_a_record_stands_for_the_log_of_its_session() -> None:
    main = recorded("claude-code-1", client_session=SESSION, calls=2)
    fork = recorded("claude-code-2", client_session=SESSION, calls=1, parent="claude-code-1", is_fork=True)
    assert set(join([logged("5f0c", client_session=SESSION), main, fork])) == {
        "claude-code-1",
        "claude-code-2",
    }


def test_a_log_with_more_calls_than_lamina_saw_stays() -> None:
    seen_in_part = recorded("claude-code-1", client_session=SESSION, calls=2)
    assert set(join([logged("5f0c", client_session=SESSION), seen_in_part])) == {"5f0c", "claude-code-1"}
    assert set(join([logged("a"), recorded("b")])) == {"a", "b"}, "neither names a session"


def test_a_sub_agent_belongs_to_the_conversation_that_was_under_way() -> None:
    joined = join(
        [
            recorded("first", client_session=SESSION, began=1.0),
            recorded("agent", client_session=f"{SESSION}:agent-7", parent=SESSION, began=7.0),
            recorded("second", client_session=SESSION, began=5.0),
            recorded("third", client_session=SESSION, began=9.0),
        ]
    )
    assert joined["agent"].parent == "second"


def test_what_a_client_goes_on_with_after_a_compaction_is_a_fork() -> None:
    joined = join(
        [
            recorded("after", client_session=SESSION, began=9.0),
            recorded("main", client_session=SESSION, began=1.0),
            recorded("of a user", client_session="user:7", began=1.0),
            recorded("another of that user", client_session="user:7", began=2.0),
        ]
    )
    forks = {name: each.parent for name, each in joined.items() if each.is_fork}
    assert forks == {"after": "main"}
    assert [name for name, each in joined.items() if each.parent] == ["after"]


def test_the_log_of_a_sub_agent_stands_under_the_record_of_its_parent() -> None:
    log = logged("5f0c/agent-7", client_session=f"{SESSION}:agent-7", parent="5f0c", began=7.0)
    joined = join(
        [logged("5f0c", client_session=SESSION), recorded("main", client_session=SESSION, began=1.0), log]
    )
    assert {name: each.parent for name, each in joined.items()} == {"main": "", "5f0c/agent-7": "main"}


def test_a_replay_of_logs_and_of_the_store_counts_a_session_once(tmp_path: Path) -> None:
    log = write_agent_log(tmp_path)
    writer = RecordWriter()
    for number in range(3):
        body = json.dumps({"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "Go."}]})
        writer.add_sent(
            SentRequest(id=f"r{number}", at=1.0 + number, dialect="anthropic", model="claude-sonnet-4-5"),
            body=body.encode(),
        )
        writer.add_answer(
            Answered(id=f"r{number}", at=2.0, status=200, usage=Usage(input=5_000, output=9)), body=b"{}"
        )
    state = ConversationState(door="gateway", dialect="anthropic", group="claude-code:session-a", keep="all")
    store = tmp_path / "kept.db"

    async def save() -> None:
        async with open_store(str(store)) as opened:
            place = conversation_place("default", "claude-code-1")
            await opened.append(place, writer.encode(), state=state.encode())

    anyio.run(save)

    def count_calls(*places: str | Path) -> dict[str, int]:
        told = json.loads(run("cost", *places, "--jobs", "1", "--json", "-").out)
        return {each["conversation"]: each["calls"] for each in told["conversations"]}

    assert count_calls(log) == {"session-a": 2, "session-a/agent-1": 1}
    assert count_calls(log, "--store", store) == {"claude-code-1": 3, "session-a/agent-1": 1}
