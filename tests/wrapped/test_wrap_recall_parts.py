"""Recalls inside a call of the clients whose answers have whole calls: google-genai and Ollama."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ollama
import pytest
from google import genai
from google.genai import types

import lamina
from lamina.conversations import recall_loop
from lamina.conversations.recall_answers import NOTICE
from lamina.core.tokens import BYTES4
from lamina.fitting import Policy
from tests.sessions.talking import awaited
from tests.talking import all_of, got
from tests.wrapped.scripted_api import Call, Said, scripted_api
from tests.wrapped.test_wrap_recall import BUDGET, FACT, HANDLE, flatten, long_answer

READ_FILE: dict[str, Any] = {"name": "read_file", "description": "", "parameters": {"type": "object"}}


class Way(NamedTuple):
    """An SDK, with or without `await`, whole answers or streams."""

    name: str
    is_async: bool
    streams: bool

    def client(self, url: str) -> Any:
        client: Any = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))
        if self.name == "ollama":
            client = ollama.AsyncClient(host=url) if self.is_async else ollama.Client(host=url)
        return lamina.wrap(client, budget=BUDGET, policy=Policy(counter=BYTES4, breakpoints="keep"))

    def name_call(self, call_id: str) -> str:
        """Gemini gives no ids here, as it sometimes does."""
        return "" if self.name == "gemini" else call_id

    def user(self, text: str) -> Any:
        if self.name == "ollama":
            return {"role": "user", "content": text}
        return types.Content(role="user", parts=[types.Part(text=text)])

    def says(self, text: str) -> Any:
        if self.name == "ollama":
            return {"role": "assistant", "content": text}
        return types.Content(role="model", parts=[types.Part(text=text)])

    def turns(self, request: dict[str, Any]) -> list[Any]:
        turns: list[Any] = request["messages" if self.name == "ollama" else "contents"]
        return turns

    async def ask(self, client: Any, history: list[Any]) -> tuple[Any, str]:
        """The answer as a turn for the history, and its text."""
        if self.name == "ollama":
            return await self._ask_ollama(client, history)
        models = client.aio.models if self.is_async else client.models
        send = models.generate_content_stream if self.streams else models.generate_content
        tool = types.Tool(function_declarations=[types.FunctionDeclaration(**READ_FILE)])
        config = types.GenerateContentConfig(
            tools=[tool], automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True)
        )
        answer = await got(send(model="gemini-3.8-flash", contents=history, config=config))
        answers = await all_of(answer) if self.streams else [answer]
        parts = [part for each in answers for part in each.candidates[0].content.parts or []]
        assert [each.candidates[0].finish_reason for each in answers].count("STOP") == 1
        return types.Content(role="model", parts=parts), "".join(part.text or "" for part in parts)

    async def fill(self, client: Any) -> list[Any]:
        """A history whose first answer has been lowered. Only the first and the last turn are asked for."""
        history: list[Any] = []
        for turn in range(8):
            history.append(self.user(f"Part {turn}?"))
            if 0 < turn < 7:
                history.append(self.says(long_answer(f"Part {turn}?")))
                continue
            answer, _ = await self.ask(client, history)
            history.append(answer)
        return history

    async def _ask_ollama(self, client: Any, history: list[Any]) -> tuple[Any, str]:
        tools = [{"type": "function", "function": READ_FILE}]
        answer = await got(client.chat("llama3.1", history, tools=tools, stream=self.streams))
        answers = await all_of(answer) if self.streams else [answer]
        assert [bool(each.done) for each in answers].count(True) == 1
        text = "".join(each.message.content or "" for each in answers)
        calls = [call for each in answers for call in each.message.tool_calls or []]
        return {"role": "assistant", "content": text, "tool_calls": calls}, text

    def result(self, text: str) -> Any:
        """The result of the client's own tool, as its next turn."""
        if self.name == "ollama":
            return {"role": "tool", "tool_name": "read_file", "content": text}
        return types.Content(
            role="user",
            parts=[types.Part.from_function_response(name="read_file", response={"output": text})],
        )


WAYS = [
    Way("gemini", is_async=False, streams=False),
    Way("gemini", is_async=True, streams=True),
    Way("ollama", is_async=False, streams=True),
    Way("ollama", is_async=True, streams=False),
]


def remembering(way: Way) -> Callable[[dict[str, Any]], Said]:
    """A model that says something and recalls the first handle, when it is asked about the harbour."""

    def script(request: dict[str, Any]) -> Said:
        last = flatten(way.turns(request)[-1])
        if "Only recall." in flatten(request):
            key = HANDLE.findall(flatten(request))[0]
            return [Call("recall", {"key": key}, way.name_call(f"r{len(way.turns(request))}"))]
        if "harbour?" in last:
            handles = HANDLE.findall(flatten(request))
            return [
                "Let me look. ",
                Call("recall", {"key": handles[0], "find": "opens at"}, way.name_call("r1")),
            ]
        if "content of a.txt" in last:
            return ["Both: " + ("yes" if FACT in flatten(way.turns(request)[-3:]) else "no")]
        if "Both?" in last:
            handles = HANDLE.findall(flatten(request))
            recall = Call("recall", {"key": handles[0], "find": "opens at"}, way.name_call("r2"))
            return [recall, Call("read_file", {}, way.name_call("c1"))]
        if FACT in last:
            return ["It says: ", FACT]
        return [long_answer(last)]

    return script


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way)))
@awaited
async def test_the_model_gets_the_text_and_the_client_only_the_answer(way: Way) -> None:
    with scripted_api(remembering(way)) as served:
        client = way.client(served.url)
        history = await way.fill(client)
        start = len(served.requests)
        history.append(way.user("When opens the harbour?"))
        answer, text = await way.ask(client, history)
        assert text.endswith(f"It says: {FACT}")
        assert text.startswith("Let me look. ") == way.streams
        assert len(served.requests) == start + 2
        history += [answer, way.user("Thanks.")]
        answer, _ = await way.ask(client, history)
        assert len(served.requests) == start + 3
        assert '"recall"' not in flatten(history)
        history += [answer, way.user("Both?")]
        answer, _ = await way.ask(client, history)
        assert "read_file" in flatten(answer)
        assert "recall" not in flatten(answer)
        history += [answer, way.result("content of a.txt")]
        answer, text = await way.ask(client, history)
        assert text == "Both: yes"
        history += [answer, way.user("Thanks.")]
        await way.ask(client, history)
        assert len(served.requests) == start + 6
        for before, after in zip(served.requests[start:], served.requests[start + 1 :], strict=False):
            assert way.turns(after)[: len(way.turns(before))] == way.turns(before)
            assert before["tools"] == after["tools"]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", ["gemini", "ollama"])
@awaited
async def test_a_model_that_only_recalls_is_stopped_and_its_client_reads_why(
    name: str,
    streams: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recall_loop, "ROUNDS", 2)
    way = Way(name, is_async=streams, streams=streams)
    with scripted_api(remembering(way)) as served:
        client = way.client(served.url)
        history = await way.fill(client)
        _, text = await way.ask(client, [*history, way.user("Only recall.")])
        assert text == NOTICE
