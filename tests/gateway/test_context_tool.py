"""The context tool through the gateway: every API, whole and streamed; the client never sees any of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.running import settings_for
from tests.gateway.test_recall import (
    FACT,
    OWN_RESULT,
    WINDOW,
    Wire,
    check_directly,
    check_prefixes,
    each_dialect,
    first_handle,
    flatten,
    long_history,
)
from tests.gateway.test_sdks import gateway_in_thread
from tests.wrapped.scripted_api import Call, Said, scripted_api

WITH_TOOL = {**WINDOW, "context_tools": True}
ASK = "What should stay?"
STREAMED = [Wire("anthropic", streams=True), Wire("openai_chat", streams=False)]


def model_with_a_say(wire: Wire, request: dict[str, Any]) -> Said:
    """A model that looks at its window, pins what it was told first, and takes a note."""
    last = flatten(wire.turns(request)[-1])
    if ASK in last:
        return ["Let me look.", Call("context", {"action": "status"}, "s1")]
    if "used: " in last:
        return [Call("context", {"action": "pin", "what": FACT}, "p1")]
    if "pinned: its text stands here now" in last:
        return [Call("context", {"action": "note", "what": "the harbour matters"}, "n1")]
    if "noted: " in last:
        return ["Kept."]
    return ["Go on. " * 240]


@each_dialect
def test_status_pin_and_note_inside_one_answer_and_after_a_restart(wire: Wire, tmp_path: Path) -> None:
    history = [*long_history(wire), wire.user(ASK)]
    with scripted_api(lambda request: model_with_a_say(wire, request)) as api:
        settings = settings_for(api.url, tmp_path / "gateway.db", upstream=WITH_TOOL)
        with gateway_in_thread(settings) as gateway:
            reply = wire.ask(gateway.url, history)
        assert reply.text.endswith("Kept.")
        assert reply.calls == []
        assert len(api.requests) == 4
        tools = flatten(api.requests[0]["tools"])
        assert tools.index('"recall"') < tools.index('"context"')
        check_prefixes(wire, api.requests)
        history += [*reply.turns]
        check_directly(wire, [*history, wire.user("Next?")])
        assert '"context"' not in flatten(history)
        start = len(api.requests)
        with gateway_in_thread(settings) as gateway:
            for part in range(8):
                history.append(wire.user(f"More {part}?"))
                reply = wire.ask(gateway.url, history)
                history += reply.turns
        for request in api.requests[start:]:
            assert FACT in flatten(request)
            assert wire.dialect.wire.check(request) == []
            assert request["tools"] == api.requests[0]["tools"]
        assert len(wire.turns(api.requests[-1])) < len(wire.turns(api.requests[0])) + 16 + 6


@pytest.mark.parametrize("wire", STREAMED, ids=lambda wire: wire.name)
def test_beside_a_call_of_the_client_the_pin_waits_for_the_clients_result(wire: Wire, tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> Said:
        last = flatten(wire.turns(request)[-1])
        if ASK in last:
            pin = Call("context", {"action": "pin", "what": FACT}, "p1")
            return ["Both.", pin, Call("read_file", {"path": "a.txt"}, "c1")]
        if OWN_RESULT in last:
            return ["Yes." if FACT in flatten(wire.turns(request)[-2:]) else "No."]
        return ["Go on. " * 240]

    history = [*long_history(wire), wire.user(ASK)]
    with scripted_api(script) as api:
        settings = settings_for(api.url, tmp_path / "gateway.db", upstream=WITH_TOOL)
        with gateway_in_thread(settings) as gateway:
            reply = wire.ask(gateway.url, history)
            assert reply.calls == ["c1"]
            history += [*reply.turns, *wire.results(reply.calls)]
            reply = wire.ask(gateway.url, history)
            assert reply.text == "Yes."
            for part in range(8):
                history += [*reply.turns, wire.user(f"More {part}?")]
                reply = wire.ask(gateway.url, history)
        assert all(FACT in flatten(request) for request in api.requests)
        assert '"context"' not in flatten(history)


@pytest.mark.parametrize("wire", STREAMED, ids=lambda wire: wire.name)
def test_nothing_of_it_is_sent_if_it_is_off_or_the_client_has_such_a_tool(wire: Wire, tmp_path: Path) -> None:
    history = [*long_history(wire), wire.user("Go on.")]
    with scripted_api(lambda _: ["Fine."]) as api:
        off = settings_for(api.url, tmp_path / "off.db", upstream=WINDOW)
        with gateway_in_thread(off) as gateway:
            wire.ask(gateway.url, history)
        assert '"context"' not in flatten(api.requests[0])

    class OwnContext(Wire):
        def request(self, history: list[Any]) -> dict[str, Any]:
            request = super().request(history)
            text = flatten(request["tools"]).replace("read_file", "context")
            return {**request, "tools": json.loads(text)}

    named = OwnContext(wire.name, wire.streams)

    def calls_it(request: dict[str, Any]) -> Said:
        if "Go on." in flatten(named.turns(request)[-1]):
            return [Call("context", {"action": "pin", "what": FACT}, "c1")]
        return ["Fine."]

    with scripted_api(calls_it) as api:
        on = settings_for(api.url, tmp_path / "on.db", upstream=WITH_TOOL)
        with gateway_in_thread(on) as gateway:
            reply = named.ask(gateway.url, history)
            assert reply.calls == ["c1"]
        assert len(api.requests) == 1
        assert flatten(api.requests[0]["tools"]).count('"context"') == 1


def test_a_handle_of_another_conversation_names_nothing(tmp_path: Path) -> None:
    wire = Wire("anthropic", streams=False)
    stolen: list[str] = []

    def script(request: dict[str, Any]) -> Said:
        last = flatten(wire.turns(request)[-1])
        if "Mine?" in last:
            stolen.append(first_handle(request))
            return ["Mine."]
        if "Yours?" in last:
            return [Call("context", {"action": "pin", "what": stolen[0]}, "p1")]
        return ["Done."]

    other = [
        wire.user("Another talk."),
        *(wire.says("Other. " * 260) if number % 2 else wire.user(f"On {number}") for number in range(1, 20)),
    ]
    with scripted_api(script) as api:
        settings = settings_for(api.url, tmp_path / "gateway.db", upstream=WITH_TOOL)
        with gateway_in_thread(settings) as gateway:
            wire.ask(gateway.url, [*long_history(wire), wire.user("Mine?")])
            wire.ask(gateway.url, [*other, wire.user("Yours?")])
    answer = flatten(wire.turns(api.requests[-1])[-1])
    assert "not done: " in answer
    assert FACT not in flatten(api.requests[-1])
