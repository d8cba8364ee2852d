"""A client's history as a request of its API, as real clients write it.

A client that keeps its objects sends the same ones again and again, and changes them in place when it edits a
message; others make all of them anew for each request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.fuzzing.history import Message, Settings
from tests.fuzzing.writing import anthropic, gemini, openai_chat, openai_responses

Json = dict[str, Any]
WriteMessage = Callable[[Message, Settings], list[Json]]
WriteRequest = Callable[[list[Json], Settings], Json]

WRITERS: Mapping[str, tuple[WriteMessage, WriteRequest]] = {
    "anthropic": (anthropic.write_message, anthropic.write_request),
    "openai_chat": (openai_chat.write_message, openai_chat.write_request),
    "openai_responses": (openai_responses.write_message, openai_responses.write_request),
    "gemini": (gemini.write_message, gemini.write_request),
}


def write(messages: Iterable[Message], settings: Settings) -> Json:
    """The request for these messages."""
    write_message, write_request = WRITERS[settings.dialect]
    objects: list[Json] = []
    for message in messages:
        objects += _written(message, settings, write_message)
    request = write_request(objects, settings)
    return request if settings.keeps_objects else _fresh(request)


def _written(message: Message, settings: Settings, write_message: WriteMessage) -> list[Json]:
    if not settings.keeps_objects:
        return write_message(message, settings)
    if message.wire is not None and not message.stale:
        return message.wire
    objects = write_message(message, settings)
    if message.wire is not None and len(message.wire) == len(objects):
        for kept, written in zip(message.wire, objects, strict=True):
            kept.clear()
            kept.update(written)
    else:
        message.wire = objects
    message.stale = False
    return message.wire


def _fresh(request: Json) -> Json:
    """The request as it comes from a file or from the network: no object of it was seen before."""
    made: Json = json.loads(json.dumps(request))
    return made
