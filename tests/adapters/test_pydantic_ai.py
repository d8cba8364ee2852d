"""pydantic-ai's own agent over a scripted model, with lamina's capability."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "pydantic_ai.capabilities", reason="pydantic-ai is not installed: run `make adapters` to test it"
)

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from lamina.adapters.chat_turns import write_tool
from lamina.adapters.pydantic_ai import CODEC, LEDGER, LaminaCapability
from lamina.core.values import Budget
from lamina.fitting import fit_request
from tests.adapters import over_wire
from tests.adapters.long_session import BUDGET, SYSTEM, Script, check_session, read_page


class ScriptedModel(Model):
    """Answers as the script says, and records what it gets."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    @property
    def model_name(self) -> str:
        return "scripted"

    @property
    def system(self) -> str:
        return "test"

    async def request(self, messages: Any, _: Any, model_request_parameters: Any) -> ModelResponse:
        turns: list[Any] = [{"role": "system", "content": SYSTEM}]
        turns += [turn for message in messages for turn in CODEC.write(message)]
        definitions = model_request_parameters.function_tools
        tools = [write_tool(each.name, each.description, each.parameters_json_schema) for each in definitions]
        answer = self.script.answer(turns, tools)
        part: Any = TextPart(answer.text)
        if answer.name:
            part = ToolCallPart(answer.name, answer.arguments, answer.call_id)
        return ModelResponse(parts=[part], usage=RequestUsage(input_tokens=answer.tokens))


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> None:
    capabilities = [LaminaCapability(budget=BUDGET)] if fitted else []
    agent = Agent(ScriptedModel(script), instructions=SYSTEM, tools=[read_page], capabilities=capabilities)
    stored = folder / "messages.json"
    history = ModelMessagesTypeAdapter.validate_json(stored.read_bytes()) if stored.exists() else []
    for turn in turns:
        history = asyncio.run(agent.run(script.begin(turn), message_history=history)).all_messages()
    stored.write_bytes(ModelMessagesTypeAdapter.dump_json(history))


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)
    history = (tmp_path / "whole" / "messages.json").read_text(encoding="utf-8")
    assert history.count(LEDGER) == 4  # one for each turn


class ManualAnswer(BaseModel):
    """What the manual says, with the pages that say it."""

    text: str
    pages: list[int]


OUTPUTS = {
    "text": str,
    "tool": ToolOutput(ManualAnswer),
    "native": NativeOutput(ManualAnswer),
    "prompted": PromptedOutput(ManualAnswer),
}


class WireRecorder:
    """Chat Completions in memory. It asks for pages, then answers. `requests` are the bodies that it got."""

    def __init__(self, lines: int) -> None:
        self._httpx = pytest.importorskip("httpx", reason="it comes with the OpenAI SDK")
        self.requests: list[dict[str, Any]] = []
        self._lines = lines

    def open_client(self) -> Any:
        """An HTTP client whose requests arrive here."""
        return self._httpx.AsyncClient(transport=self._httpx.MockTransport(self.answer))

    def read_page(self, number: int) -> str:
        """A page of the manual."""
        return "\n".join(
            f"Page {number}, line {line}: press a key, then wait." for line in range(self._lines)
        )

    def answer(self, request: Any) -> Any:
        body = json.loads(request.content)
        self.requests.append(body)
        page = len(self.requests)
        answer = json.dumps({"text": "Press a key.", "pages": [1]})
        name = ""
        if page <= 14:
            name = "read_page"
            answer = json.dumps({"number": page})
        elif any(tool["function"]["name"] == "final_result" for tool in body["tools"]):
            name = "final_result"
        message: dict[str, Any] = {"role": "assistant", "content": answer}
        if name:
            call = {"id": f"call_{page}", "type": "function", "function": {"name": name, "arguments": answer}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        answer_body = {"id": "1", "object": "chat.completion", "created": 1, "model": "gpt-4o"}
        return self._httpx.Response(200, json={**answer_body, "choices": [choice]})


def play_over_wire(output: str, lines: int, *, inline: bool, falls_back: bool) -> list[dict[str, Any]]:
    """The bodies that pydantic-ai's own client for Chat Completions sends.

    `inline`: the model takes system messages in the middle. If not, the framework puts them into tags and
    says in a system message what these mean. `falls_back`: it is the second of two models.
    """
    openai = pytest.importorskip("openai", reason="the OpenAI SDK is not installed")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    recorder = WireRecorder(lines)
    client = openai.AsyncOpenAI(api_key="none", http_client=recorder.open_client())
    provider = providers.OpenAIProvider(openai_client=client)
    profile = {"supports_inline_system_prompts": inline}
    model = models.OpenAIChatModel("gpt-4o", provider=provider, profile=profile)
    if falls_back:
        model = FallbackModel(FunctionModel(fail), model)
    agent: Agent[None, Any] = Agent(
        model,
        instructions=SYSTEM,
        tools=[recorder.read_page],
        capabilities=[LaminaCapability(budget=Budget(window=5_000, reserve=1_000, trigger=1.0))],
        output_type=OUTPUTS[output],
    )
    asyncio.run(agent.run("Read all pages."))
    return recorder.requests


def fail(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
    raise ModelHTTPError(503, "first")


def count_tokens(request: dict[str, Any]) -> int:
    return fit_request(request, dialect="openai_chat", budget=Budget(window=10_000_000)).envelope.tokens


WAYS = [
    ("text", False, False),
    ("tool", True, False),
    pytest.param("native", False, False, marks=pytest.mark.thorough),
    pytest.param("prompted", True, False, marks=pytest.mark.thorough),
    ("native", False, True),
]


@pytest.mark.parametrize(("output", "inline", "falls_back"), WAYS)
def test_what_the_framework_adds_to_a_request_is_counted(output: str, inline: bool, falls_back: bool) -> None:
    """Instructions for the output, its schema, and the sentence on tags are sent after lamina's hook."""
    sizes: list[int] = []
    for lines in (20, 26):
        requests = play_over_wire(output, lines, inline=inline, falls_back=falls_back)
        sizes += map(count_tokens, requests)
    # Of a fallback lamina does not know the model, so its estimate is an upper bound and cuts come earlier.
    assert max(sizes) > (2_600 if falls_back else 3_600)
    assert sum(size > 4_000 for size in sizes) == 0


def test_a_refused_answer_reaches_the_model_with_the_reason() -> None:
    """The framework's feedback is a message of its own, and stays in the request."""
    seen: list[list[Any]] = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        seen.append([turn for message in messages for turn in CODEC.write(message)])
        return ModelResponse(parts=[TextPart(f"answer {len(seen)}")])

    agent = Agent(FunctionModel(answer), instructions=SYSTEM, capabilities=[LaminaCapability(budget=BUDGET)])

    @agent.output_validator
    def refuse_first(output: str) -> str:
        if output == "answer 1":
            raise ModelRetry("name the page")
        return output

    assert asyncio.run(agent.run("Which key?")).output == "answer 2"
    assert "name the page" in seen[1][-1]["content"]


def open_model(api: str, url: str) -> tuple[Model, Any]:
    """A model of pydantic-ai's own, whose API is at this address, and its client, to be closed."""
    if api == "messages":
        sdk = pytest.importorskip("anthropic", reason="the Anthropic SDK is not installed")
        models = pytest.importorskip("pydantic_ai.models.anthropic")
        providers = pytest.importorskip("pydantic_ai.providers.anthropic")
        client = sdk.AsyncAnthropic(api_key="none", base_url=url, max_retries=0)
        provider = providers.AnthropicProvider(anthropic_client=client)
        anthropic_model: Model = models.AnthropicModel(over_wire.ANTHROPIC, provider=provider)
        return anthropic_model, client
    sdk = pytest.importorskip("openai", reason="the OpenAI SDK is not installed")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    client = sdk.AsyncOpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0)
    kinds = {"chat": models.OpenAIChatModel, "responses": models.OpenAIResponsesModel}
    model: Model = kinds[api](over_wire.OPENAI, provider=providers.OpenAIProvider(openai_client=client))
    return model, client


QUICK_CALLS = frozenset((("chat", "run"), ("messages", "run_stream")))
"""Each SDK once, and each mode once."""

CALLS = [
    pytest.param(api, mode, marks=() if (api, mode) in QUICK_CALLS else pytest.mark.thorough)
    for api, mode in product(("chat", "responses", "messages"), ("run", "run_sync", "run_stream"))
]


@pytest.mark.parametrize(("api", "mode"), CALLS)
def test_over_the_wire(api: str, mode: str, record_property: Any) -> None:
    def run(server: over_wire.StrictServer) -> None:
        model, client = open_model(api, server.url)
        agent = Agent(
            model,
            instructions=SYSTEM,
            tools=[read_page],
            capabilities=[LaminaCapability(budget=over_wire.BUDGET)],
            model_settings={"max_tokens": 900},
        )
        if mode == "run_sync":
            ask_one_after_the_other(agent, server, client)
        else:
            asyncio.run(ask_over_wire(agent, server, client, stream=mode == "run_stream"))

    over_wire.play_over_wire(f"{api}, {mode}", run, record_property)


def ask_one_after_the_other(agent: Agent[None, str], server: over_wire.StrictServer, client: Any) -> None:
    """Without a loop of its own, `run_sync` would make one and never close it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    history: list[ModelMessage] = []
    try:
        for turn in range(over_wire.TURNS):
            history = agent.run_sync(server.script.begin(turn), message_history=history).all_messages()
        loop.run_until_complete(client.close())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def ask_over_wire(
    agent: Agent[None, str], server: over_wire.StrictServer, client: Any, *, stream: bool
) -> None:
    history: list[ModelMessage] = []
    async with client:
        for turn in range(over_wire.TURNS):
            question = server.script.begin(turn)
            if not stream:
                history = (await agent.run(question, message_history=history)).all_messages()
                continue
            async with agent.run_stream(question, message_history=history) as result:
                await result.get_output()
                history = result.all_messages()
