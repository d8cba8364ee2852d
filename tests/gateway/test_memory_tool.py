"""A memory tool that the client serves itself passes through: its definition, its calls and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import pytest

from lamina import Policy, wrap
from tests.gateway.running import settings_for
from tests.gateway.test_sdks import gateway_in_thread
from tests.wrapped.scripted_api import Call, Said, ScriptedApi, scripted_api

DECLARED = {"type": "memory_20250818", "name": "memory"}
VIEW = {"command": "view", "path": "/memories/notes.md"}


def look_first(request: dict[str, Any]) -> Said:
    """A model that looks into its memory before it answers."""
    if len(request["messages"]) == 1:
        return ["Let me look.", Call("memory", VIEW, "m1")]
    return ["Tea."]


@contextmanager
def open_gateway(api: ScriptedApi, folder: Path) -> Iterator[Any]:
    """A client of a gateway in front of the API."""
    settings = settings_for(api.url, folder / "g.db")
    with gateway_in_thread(settings) as gateway, connect(gateway.url) as client:
        yield client


@contextmanager
def open_wrapped(api: ScriptedApi, folder: Path) -> Iterator[Any]:
    """A wrapped client of the API."""
    with connect(api.url) as client:
        yield wrap(client, policy=Policy(breakpoints="keep"), store=folder / "w.db")


def connect(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def ask(client: Any, history: list[Any], *, streams: bool) -> Any:
    request: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 100, "tools": [DECLARED]}
    if not streams:
        return client.messages.create(**request, messages=history)
    with client.messages.stream(**request, messages=history) as stream:
        return stream.get_final_message()


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("open_door", [open_gateway, open_wrapped])
def test_a_memory_tool_that_the_client_serves_passes_through(
    open_door: Callable[..., Any], tmp_path: Path, *, streams: bool
) -> None:
    history: list[Any] = [{"role": "user", "content": "What does she drink?"}]
    with scripted_api(look_first) as api, open_door(api, tmp_path) as client:
        answer = ask(client, history, streams=streams)
        assert [block.type for block in answer.content] == ["text", "tool_use"]
        assert answer.content[1].input == VIEW
        result = {"type": "tool_result", "tool_use_id": "m1", "content": "She prefers tea."}
        history += [
            {
                "role": "assistant",
                "content": [block.model_dump(exclude_none=True) for block in answer.content],
            },
            {"role": "user", "content": [result]},
        ]
        answer = ask(client, history, streams=streams)
        assert [block.text for block in answer.content] == ["Tea."]
        assert [request["tools"] for request in api.requests] == [[DECLARED], [DECLARED]]
        assert api.requests[-1]["messages"] == history
