"""The agent of OpenAI's Agents SDK over a scripted model, with lamina's session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents.memory", reason="openai-agents is not installed: run `make adapters` to test it")

from agents import (
    Agent,
    Model,
    ModelProvider,
    ModelResponse,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
)
from agents.mcp import MCPServer
from agents.memory import Session, SessionSettings
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.models.openai_responses import Converter
from agents.run import CallModelData, ModelInputData
from mcp.types import Tool as McpTool
from openai import AsyncOpenAI
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from lamina.adapters.openai_agents import LaminaSession
from lamina.stores.store_thread import StoreThread
from tests.adapters import over_wire
from tests.adapters.long_answer import ANSWER_TEXT, MARK, LongAnswer
from tests.adapters.long_session import (
    BUDGET,
    SYSTEM,
    Answer,
    Script,
    check_counts,
    check_session,
    count_requests,
    read_page,
)


class ScriptedModel(Model):
    """Answers as the script says, and records what it gets. It has no name, so nobody knows its tokens."""

    model = ""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def get_response(self, system_instructions: Any, input: Any, **others: Any) -> ModelResponse:  # noqa: A002
        head: dict[str, Any] = {"instructions": system_instructions, "model": self.model}
        if others["output_schema"] is not None:
            head["text"] = Converter.get_response_format(others["output_schema"])
        tools = Converter.convert_tools(others["tools"], others["handoffs"]).tools
        answer = self.script.answer(drop_made_up_ids(input), tools, field="input", **head)
        usage = Usage(requests=1, input_tokens=answer.tokens, output_tokens=9)
        return ModelResponse(output=[write_answer(answer)], usage=usage, response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def drop_made_up_ids(items: Sequence[Any]) -> list[Any]:
    """The items as the SDK sends them to the Responses API."""
    sent_items: list[Any] = []
    for item in items:
        if item.get("id") == FAKE_RESPONSES_ID:
            sent_items.append({name: value for name, value in item.items() if name != "id"})
        else:
            sent_items.append(item)
    return sent_items


def write_answer(answer: Answer) -> Any:
    if answer.name:
        return ResponseFunctionToolCall(
            type="function_call",
            call_id=answer.call_id,
            name=answer.name,
            arguments=str(answer.arguments).replace("'", '"'),
        )
    text = ResponseOutputText(type="output_text", text=answer.text, annotations=[])
    return ResponseOutputMessage(
        id="msg", type="message", role="assistant", status="completed", content=[text]
    )


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool, **options: Any) -> None:
    agent = Agent(
        "reader",
        instructions=SYSTEM,
        tools=[function_tool(read_page)],
        model=ScriptedModel(script),
        **options,
    )
    asyncio.run(ask(agent, folder, script, turns, fitted))


async def ask(agent: Any, folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> None:
    if not fitted:
        session = SQLiteSession("manual", folder / "plain.db")
        for turn in turns:
            await Runner.run(agent, script.begin(turn), session=session, max_turns=60)
        return
    with StoreThread(str(folder / "chats.db")) as store:
        lamina_session = LaminaSession("manual", store, budget=BUDGET)
        for turn in turns:
            await Runner.run(
                lamina_session.equip(agent),
                script.begin(turn),
                session=lamina_session,
                run_config=lamina_session.run_config(tracing_disabled=True),
                max_turns=60,
            )


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)


def test_the_limit_of_its_settings_counts() -> None:
    async def read_items() -> list[Any]:
        with StoreThread("memory:") as store:
            session = LaminaSession("manual", store)
            session.session_settings = SessionSettings(limit=1)
            await session.add_items([{"role": "user", "content": "1"}, {"role": "user", "content": "2"}])
            return [await session.get_items(), await session.get_items(9)]

    assert list(map(len, asyncio.run(read_items()))) == [1, 2]


def test_a_filter_of_the_configuration_comes_first() -> None:
    """A configuration that was made with the session's filter in it is fitted once."""

    def add_date(data: Any) -> ModelInputData:
        today: Any = {"role": "user", "content": "It is Monday."}
        return ModelInputData([*data.model_data.input, today], data.model_data.instructions)

    async def filter_twice() -> list[Any]:
        with StoreThread("memory:") as store:
            session = LaminaSession("manual", store, budget=BUDGET)
            config = session.run_config(RunConfig(call_model_input_filter=add_date))
            config = session.run_config(config, workflow_name="again")
            given = ModelInputData([{"role": "user", "content": "Hello"}], None)
            data: Any = CallModelData(given, Agent("reader", model=ScriptedModel(Script())), None)
            filtered: Any = config.call_model_input_filter
            return [item["content"] for item in (await filtered(data)).input]

    assert asyncio.run(filter_twice()) == ["Hello", "It is Monday."]


def test_it_keeps_items_as_their_own_session_does(tmp_path: Path) -> None:
    items: list[Any] = [{"role": "user", "content": str(number)} for number in range(5)]

    async def use(session: Any) -> list[Any]:
        seen: list[Any] = [await session.get_items(), await session.pop_item()]
        await session.add_items(items)
        seen += [await session.get_items(), await session.get_items(2), await session.get_items(0)]
        seen += [await session.pop_item(), await session.get_items()]
        await session.add_items(items[:1])
        seen.append(await session.get_items(10))
        await session.clear_session()
        seen.append(await session.get_items())
        return seen

    with StoreThread("memory:") as store:
        ours = LaminaSession("one", store)
        assert isinstance(ours, Session)
        assert asyncio.run(use(ours)) == asyncio.run(use(SQLiteSession("one", tmp_path / "theirs.db")))


class ManualServer(MCPServer):
    """A server of the Model Context Protocol with one tool, whose description is long."""

    def __init__(self) -> None:
        super().__init__()
        arguments: dict[str, Any] = {"inputSchema": {"type": "object"}}  # its name in all versions of mcp
        self.tool = McpTool(name="find", description="Looks into an index. " * 60, **arguments)

    @property
    def name(self) -> str:
        return "manual"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, *_: Any, **__: Any) -> Any:
        return [self.tool]

    async def call_tool(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("added", ["output", "handoff", "mcp"])
def test_what_the_sdk_adds_is_counted(tmp_path: Path, added: str) -> None:
    options: dict[str, Any] = {
        "output": {"output_type": LongAnswer},
        "handoff": {"handoffs": [Agent("writer", handoff_description=f"{MARK} " * 50)]},
        "mcp": {"mcp_servers": [ManualServer()]},
    }
    requests = check_counts(partial(play, **options[added]), tmp_path, last_words=ANSWER_TEXT)
    marks = {"output": MARK, "handoff": MARK, "mcp": "Looks into an index."}
    assert marks[added] in json.dumps(requests[0])


class NamedModel(ScriptedModel):
    """A model that has a name, as those of OpenAI have."""

    model = "gpt-4o"


class NamedProvider(ModelProvider):
    """Has one model, which it gives for every name. It writes down the names."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.names: list[str | None] = []

    def get_model(self, model_name: str | None) -> Model:
        self.names.append(model_name)
        return NamedModel(self.script)


@pytest.mark.parametrize("choice", ["run by name", "run by object", "agent by name", "nobody"])
def test_the_window_is_that_of_the_model_that_is_called(choice: str) -> None:
    """A run of gpt-4o (128,000 tokens) with an agent of gpt-5.4-mini, or with one that names no model."""
    script = Script()
    provider = NamedProvider(script)
    agent = Agent("reader", instructions=SYSTEM, model="gpt-5.4-mini")
    settings: dict[str, Any] = {"model_provider": provider, "tracing_disabled": True}
    match choice:
        case "run by name":
            settings["model"] = "gpt-4o"
        case "run by object":
            settings["model"] = NamedModel(script)
        case "agent by name":
            agent = Agent("reader", instructions=SYSTEM, model="gpt-4o")
        case "nobody":
            agent = Agent(name="reader", instructions=SYSTEM)
    pages: list[Any] = []
    for number in range(340):
        pages.append({"role": "user", "content": f"Page {number}."})
        pages.append({"role": "assistant", "content": read_page(number)})
    pages.append({"role": "user", "content": script.begin(0)})
    script.end()

    async def ask_once() -> None:
        with StoreThread("memory:") as store:
            session = LaminaSession("manual", store)
            await Runner.run(agent, pages, run_config=session.run_config(RunConfig(**settings)))

    asyncio.run(ask_once())
    whole = {**script.requests[0], "input": pages}
    sent, unfitted = count_requests([*script.requests, whole]).sizes
    assert sent < 128_000 < unfitted < 272_000


def test_each_call_reads_the_ledger_but_not_the_items(tmp_path: Path) -> None:
    reads: list[Any] = []

    async def ask_once() -> None:
        script = Script()
        agent = Agent("reader", tools=[function_tool(read_page)], model=ScriptedModel(script))
        with StoreThread(str(tmp_path / "chats.db")) as store:
            session = LaminaSession("manual", store, budget=BUDGET)
            load_items = session._load_items  # noqa: SLF001

            async def watched_load(store: Any) -> list[Any]:
                reads.append(store)
                return await load_items(store)

            session._load_items = watched_load  # type: ignore[method-assign]  # noqa: SLF001
            config = session.run_config(tracing_disabled=True)
            agent = session.equip(agent)
            await Runner.run(agent, script.begin(0), session=session, run_config=config, max_turns=60)

    asyncio.run(ask_once())
    assert len(reads) <= 2


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("mode", ["run", "run_sync", "run_streamed"])
def test_over_the_wire(api: str, mode: str, record_property: Any) -> None:
    def run(server: over_wire.StrictServer) -> None:
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        model: Model = OpenAIResponsesModel(over_wire.OPENAI, client)
        if api == "chat":
            model = OpenAIChatCompletionsModel(over_wire.OPENAI, client)
        agent: Agent[Any] = Agent(
            "reader", instructions=SYSTEM, tools=[function_tool(read_page)], model=model
        )
        with StoreThread("memory:") as store:
            session = LaminaSession("manual", store, budget=over_wire.BUDGET)
            settings: dict[str, Any] = {
                "session": session,
                "run_config": session.run_config(tracing_disabled=True),
                "max_turns": 60,
            }
            for turn in range(over_wire.TURNS):
                question = server.script.begin(turn)
                if mode == "run_sync":
                    Runner.run_sync(session.equip(agent), question, **settings)
                else:
                    asyncio.run(ask_over_wire(session.equip(agent), question, mode, settings))

    over_wire.play_over_wire(f"{api}, {mode}", run, record_property)


async def ask_over_wire(agent: Agent[Any], question: str, mode: str, settings: dict[str, Any]) -> None:
    if mode == "run":
        await Runner.run(agent, question, **settings)
        return
    async for _ in Runner.run_streamed(agent, question, **settings).stream_events():
        pass
