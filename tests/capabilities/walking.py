"""How these tests go in: a session in memory, and what leaves it, message by message.

Everything here is what a user of the library would write. A request is that of Chat Completions, whose
messages are plain dictionaries with text.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec

import anyio

from lamina import Envelope, Form, Layer
from lamina.blocking import Session
from lamina.clients.events import CallEvent
from lamina.clients.scripted import ScriptedAnswer
from lamina.settings import Settings
from lamina.stores.memory import MemoryStore
from tests.sessions.talking import group_options

P = ParamSpec("P")

NO_SETTINGS = Settings()
"""Of no user: a test must not read the settings of the machine that it runs on."""


def awaited(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """A test that is a coroutine, run to its end."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        anyio.run(main)

    return run


@contextmanager
def talking(store: Any = None, conversation: str = "chat", **given: Any) -> Iterator[Session]:
    """A session; in memory and with gpt-5 unless something else is given."""
    usual: dict[str, Any] = {"model": "gpt-5", "settings": NO_SETTINGS}
    with Session.open(
        MemoryStore() if store is None else store, conversation, **group_options(usual | given)
    ) as session:
        yield session


def exchange(session: Session, question: str, answer: str, **given: Any) -> dict[str, Any]:
    """One turn: the request that leaves, after which the model answers."""
    session.ask(question, **given)
    request: dict[str, Any] = session.request()
    session.record(answer)
    return request


def messages(request: dict[str, Any]) -> list[tuple[str, str]]:
    """Role and text of each message of a request."""
    return [(message["role"], said(message.get("content"))) for message in request["messages"]]


def said(content: Any) -> str:
    """The text of a message's content, whether it is a text or a list of blocks."""
    if isinstance(content, list):
        return "\n".join(block.get("text", "") for block in content)
    return content or ""


def wire(request: dict[str, Any]) -> str:
    """A whole request as one text, to look for something anywhere in it."""
    return json.dumps(request, ensure_ascii=False)


def in_layer(envelope: Envelope | None, layer: Layer) -> list[str]:
    """The keys of what a layer sends, in order; the kind where there is no key."""
    assert envelope is not None
    return [
        entry.segment.key or entry.segment.kind
        for entry in envelope.sent
        if entry.layer is layer and entry.segment.origin != "lamina"
    ]


def lowered(envelope: Envelope | None) -> dict[str, str]:
    """Why each segment that has a key is not sent in full."""
    assert envelope is not None
    return {
        entry.segment.key: entry.why
        for entry in envelope.entries
        if entry.form is not Form.FULL and entry.segment.key
    }


def calling(name: str, **arguments: Any) -> ScriptedAnswer:
    """An answer of a scripted model that calls one tool."""
    return ScriptedAnswer(calls=(CallEvent(id=f"call_{name}", name=name, arguments=json.dumps(arguments)),))
