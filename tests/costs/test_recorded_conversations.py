"""What lamina recorded is replayed like any other log, and everybody says that it cost the same."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from lamina.blocking import Session
from lamina.cli.tail import _Printer
from lamina.conversations.record import ConversationRecord
from lamina.conversations.store import read_record
from lamina.costs.recorded_calls import price_recorded_calls
from lamina.gateway import GatewayAccount
from lamina.inspector import views
from lamina.stores import Store
from tests.cli.running import run
from tests.conversations.recorded_talk import (
    WORKSPACE,
    RecordedTalk,
    StoreAsker,
    write_long_talk,
)
from tests.conversations.truth import open_inspector, price_received

OPENAI_USAGE = {"prompt_tokens": 2_000, "completion_tokens": 9}


def save_talk(folder: Path, dialect: str, *, keep: str = "all") -> tuple[RecordedTalk, StoreAsker]:
    talk = write_long_talk(dialect, keep=keep)
    ask = StoreAsker(folder / "conversations.db")
    ask(talk.save)
    return talk, ask


async def read_one(store: Store) -> ConversationRecord:
    return await read_record(store, WORKSPACE, "talk")


def list_events(record: ConversationRecord) -> list[dict[str, Any]]:
    """The lines that a gateway logs of these requests: `tail` and the closing lines are made of them."""
    events: list[dict[str, Any]] = []
    for call in record.calls:
        facts = {"id": call.request.id, "conversation": "talk", "model": call.request.model}
        events.append({"event": "sent", "at": call.request.at, **facts})
        answer = call.answer
        if answer is None:
            continue
        if answer.usage is None:
            events.append({"event": "unanswered", "at": answer.at, **facts})
            continue
        usage = {name: getattr(answer.usage, name) for name in ("input", "cached", "written", "output")}
        events.append(
            {
                "event": "answered",
                "at": answer.at,
                **facts,
                "dialect": call.request.dialect,
                "recalled": answer.recalled,
                "cut": call.request.cut is not None,
                **usage,
            }
        )
    return events


@pytest.mark.parametrize("dialect", ["anthropic", "gemini"])
def test_inspector_tail_closing_lines_and_replay_agree_to_the_cent(dialect: str, tmp_path: Path) -> None:
    """A session with cuts, recalls, a refused request, equal requests repeated, and one in flight."""
    talk, ask = save_talk(tmp_path, dialect)
    by_hand = sum(price_received(received) for received in talk.received)
    record = ask(read_one)
    inspector = open_inspector(ask, WORKSPACE)
    summary = inspector.sessions.summaries()[0]
    strip = views.show_session(inspector, summary.id)
    account = GatewayAccount()
    printed = StringIO()
    printer = _Printer(printed)
    for event in list_events(record):
        account.read_event(event)
        printer.print_event(event)
    reported = [row for row in price_recorded_calls(record.calls) if row is not None]
    amounts = [
        summary.dollars,
        strip["totals"]["dollars"],
        account.cost,
        sum(row.dollars or 0.0 for row in reported),
    ]
    assert amounts == pytest.approx([by_hand] * len(amounts), abs=1e-9)
    lines = [line for line in printed.getvalue().splitlines() if "$" in line]
    tail_amounts = [float(line.partition("$")[2].split()[0]) for line in lines]
    assert sum(tail_amounts) == pytest.approx(by_hand, abs=5e-5 * len(lines))  # each is rounded
    assert len(lines) == len(reported) == sum(each.usage is not None for each in talk.received)
    assert account.broken_off == strip["totals"]["open"] == 1


@pytest.mark.parametrize("options", [[], ["--since", "2026-01-01"]])
def test_a_record_without_texts_says_what_it_cost(options: list[str], tmp_path: Path) -> None:
    talk, ask = save_talk(tmp_path, "openai_chat", keep="lowered")
    store = str(tmp_path / "conversations.db")
    done = run("cost", "--store", store, *options, "--json", "-")
    assert done.code == 0, done.err
    account = json.loads(done.out)
    (reported,) = account["conversations"]
    [summary] = open_inspector(ask, WORKSPACE).sessions.summaries()
    by_hand = sum(price_received(received) for received in talk.received)
    assert reported["dollars"] == pytest.approx(by_hand) == pytest.approx(summary.dollars)
    assert reported["began"] == pytest.approx(summary.began, abs=1.0)
    assert (account["damaged"], account["foreign"]) == ([], [])


def test_the_command_reads_a_store(tmp_path: Path) -> None:
    talk, _ = save_talk(tmp_path, "anthropic")
    store = str(tmp_path / "conversations.db")
    done = run("cost", "--store", store, "--json", "-")
    assert done.code == 0, done.err
    (reported,) = json.loads(done.out)["conversations"]
    assert reported["door"] == "gateway"
    by_hand = sum(price_received(received) for received in talk.received)
    assert reported["dollars"] == pytest.approx(by_hand, abs=1e-9)
    nothing = run("cost")
    assert nothing.code == 2
    assert "--store" in nothing.err


def test_a_session_of_a_store_is_read_once_and_has_its_day(tmp_path: Path) -> None:
    store = str(tmp_path / "chats.db")
    answer = {"choices": [{"message": {"role": "assistant", "content": "Parcels."}}], "usage": OPENAI_USAGE}
    with Session.open(store, "support", model="gpt-5") as session:
        session.ask("What does the client send?")
        session.request()
        session.record(answer)
    account = json.loads(run("cost", "--store", store, "--json", "-").out)
    (reported,) = account["conversations"]
    assert (reported["calls"], reported["title"]) == (1, "What does the client send?")
    assert reported["began"] is not None
    assert account["foreign"] == [], "its record stands beside its log, and is no file of other things"
