"""What a provider says of its cache because the caller has asked it: in the event of a miss."""

from __future__ import annotations

from typing import Any

from lamina.conversations.events import MissEvent
from lamina.wrapped import wrap
from tests.gateway.growing import messages_request
from tests.plain_client import plain_client

Json = dict[str, Any]

MISS = {"cache_miss_reason": {"type": "system_changed", "cache_missed_input_tokens": 900}}


def reporting_client() -> tuple[Any, list[Json]]:
    """A client of Anthropic's shape whose API answers the question about its cache. `bodies` are requests."""
    bodies: list[Json] = []

    def answer(request: Json) -> Json:
        bodies.append(request)
        report = None
        if (request.get("diagnostics") or {}).get("previous_message_id"):
            report = MISS
        usage = {"input_tokens": 9_000, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 8_000}
        return {
            "id": f"msg_{len(bodies)}",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "Yes."}],
            "stop_reason": "end_turn",
            "usage": usage,
            "diagnostics": report,
        }

    return plain_client(answer), bodies


def test_the_providers_word_is_in_the_event_if_the_caller_asked() -> None:
    client, bodies = reporting_client()
    misses: list[MissEvent] = []
    wrapped = wrap(client, on_miss=misses.append)
    wrapped.messages.create(**messages_request(6))
    asks = {"previous_message_id": "msg_1"}
    wrapped.messages.create(**messages_request(7, system="Be long.", diagnostics=asks))
    assert bodies[1]["diagnostics"] == asks
    (miss,) = misses
    assert (miss.cause, miss.provider) == ("system changed", "system_changed")
    assert "(the provider says system_changed)" in str(miss)


def test_lamina_itself_asks_nothing() -> None:
    client, bodies = reporting_client()
    misses: list[MissEvent] = []
    wrapped = wrap(client, on_miss=misses.append)
    for steps, system in ((6, "Be brief."), (7, "Be long.")):
        wrapped.messages.create(**messages_request(steps, system=system))
    assert not any("diagnostics" in body for body in bodies)
    (miss,) = misses
    assert miss.provider == ""
