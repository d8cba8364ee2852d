"""What a wrapped client reports: cuts, repairs and cache misses, by callbacks and by the logger `lamina`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import lamina
from lamina import Budget, Policy
from lamina.core.tokens import BYTES4
from lamina.models.facts import VARIABLE
from lamina.wrapped import CutEvent, MissEvent, RepairEvent
from tests.plain_client import plain_client

LONG = "Go on. " * 240


def reporting(usage: dict[str, Any] | None = None) -> Any:
    """A client whose answers report the usage that the test puts there."""
    return plain_client(lambda _: {"usage": usage or {}}, "chat.completions")


def talk(client: Any, turns: int, *, changed: bool = False) -> None:
    history = []
    for turn in range(turns):
        history.append({"role": "user", "content": f"Part {turn}?"})
        client.chat.completions.create(model="gpt-4o", messages=list(history))
        history.append({"role": "assistant", "content": LONG})
    if changed:
        history[0] = {"role": "user", "content": "Something else?"}
        client.chat.completions.create(model="gpt-4o", messages=list(history))


def test_a_cut_is_reported_once_with_tokens_and_money(caplog: pytest.LogCaptureFixture) -> None:
    events: list[CutEvent] = []
    client = lamina.wrap(
        reporting(),
        budget=Budget(window=3_000, reserve=200),
        policy=Policy(counter=BYTES4),
        on_cut=events.append,
    )
    with caplog.at_level(logging.INFO, logger="lamina"):
        talk(client, 8)
    (cut,) = events
    assert cut.conversation.startswith("chain-")
    assert (cut.request, cut.model) == (8, "gpt-4o")
    assert f"in request 8 of {cut.conversation}: " in str(cut)
    assert cut.before > cut.after > 0
    assert cut.saves is not None
    assert cut.saves > 0
    assert cut.costs is not None
    lines = [record.getMessage() for record in caplog.records if record.name == "lamina"]
    assert lines == [str(cut)]
    assert f"{cut.before:,} to {cut.after:,} tokens" in lines[0]
    assert "$" in lines[0]
    assert cut.reason in lines[0]


def test_a_repair_is_reported_once() -> None:
    events: list[RepairEvent] = []
    client = lamina.wrap(
        reporting(), budget=Budget(window=3_000), policy=Policy(counter=BYTES4), on_repair=events.append
    )
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "Never mind."},
    ]
    for _ in range(2):
        client.chat.completions.create(model="gpt-4o", messages=history)
        history = [*history, {"role": "assistant", "content": "Fine."}, {"role": "user", "content": "And?"}]
    assert len(events) == 1
    assert "answered by lamina" in str(events[0])


def test_a_miss_is_reported_with_its_reason_and_price() -> None:
    events: list[MissEvent] = []
    usage: dict[str, Any] = {"prompt_tokens": 3_000, "prompt_tokens_details": {"cached_tokens": 2_800}}
    client = lamina.wrap(
        reporting(usage), budget=Budget(window=100_000), policy=Policy(counter=BYTES4), on_miss=events.append
    )
    named = client.conversation("a")
    talk(named, 4)
    assert events == []
    usage["prompt_tokens_details"] = {"cached_tokens": 0}
    history = [{"role": "user", "content": "Something else?"}, {"role": "assistant", "content": LONG}]
    named.chat.completions.create(model="gpt-4o", messages=[*history, {"role": "user", "content": "And?"}])
    (miss,) = events
    assert (miss.conversation, miss.cached) == ("a", 0)
    assert miss.held >= 2_000
    assert (miss.lost, miss.by) == (miss.held, "client")
    assert miss.reason
    assert miss.price is not None
    assert f"{miss.lost:,} of {miss.held:,} cached tokens were paid again, $0.00" in str(miss)


def test_the_logger_is_silent_unless_it_is_configured(capfd: pytest.CaptureFixture[str]) -> None:
    client = lamina.wrap(reporting(), budget=Budget(window=3_000, reserve=200), policy=Policy(counter=BYTES4))
    talk(client, 8)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "known",
    ["[models.another]\nwindow = 3000\n", "[models.my-own-model]\nwindow = 3000\nprices = {read = 0.1}\n"],
)
def test_a_model_without_a_price_has_events_without_money(
    known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models.toml"
    models.write_text(known)
    monkeypatch.setenv(VARIABLE, str(models))
    events: list[CutEvent] = []
    client = lamina.wrap(
        reporting(),
        budget=Budget(window=3_000, reserve=200),
        policy=Policy(counter=BYTES4),
        on_cut=events.append,
    )
    for turn in range(8):
        history = [{"role": "user", "content": "Go."}]
        for _ in range(turn):
            history += [{"role": "assistant", "content": LONG}, {"role": "user", "content": "And?"}]
        client.chat.completions.create(model="my-own-model", messages=history)
    assert [event.saves for event in events] == [None]
    assert "$" not in str(events[0])


@pytest.mark.parametrize("listener", ["on_cut", "on_repair"])
def test_a_listener_that_raises_loses_neither_the_answer_nor_the_cut(
    listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lamina")

    def fail(_: object) -> None:
        raise ValueError("a mistake in the listener")

    usage = {"prompt_tokens": 2_400, "completion_tokens": 9, "prompt_tokens_details": None}
    listeners: dict[str, Any] = {listener: fail}
    client = lamina.wrap(
        reporting(usage), budget=Budget(window=3_000, reserve=200), policy=Policy(counter=BYTES4), **listeners
    )
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    broken = [{"role": "user", "content": "Go."}, {"role": "assistant", "tool_calls": [call]}]
    assert client.chat.completions.create(model="gpt-4o", messages=broken).usage is not None
    talk(client, 8, changed=True)
    failed = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    told = [
        record for record in caplog.records if getattr(record, "lamina_event", "") == EVENT_NAMES[listener]
    ]
    assert failed == [f"the callback for a {EVENT_NAMES[listener]} failed"] * len(told)
    assert told


EVENT_NAMES = {"on_cut": "CutEvent", "on_repair": "RepairEvent"}
